// Locks with redsync, on one server or, by the Redlock algorithm, on several.
package main

import (
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"peers/callers"
)

const lease = 10 * time.Second

func main() {
	options := callers.Parse()
	var pools []redsyncredis.Pool
	for _, url := range options.URLs {
		settings, err := redis.ParseURL(url)
		check(err)
		settings.PoolSize = options.Connections()
		pools = append(pools, goredis.NewPool(redis.NewClient(settings)))
	}
	locks := redsync.New(pools...)
	version := callers.Version("github.com/go-redsync/redsync/v4")
	callers.Run(version, options, func(name string) func() {
		mutex := locks.NewMutex(name, redsync.WithExpiry(lease),
			redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(options.Poll))
		check(mutex.Lock())
		return func() {
			_, err := mutex.Unlock()
			check(err)
		}
	})
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
