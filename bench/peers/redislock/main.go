// Locks with bsm/redislock.
package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"peers/callers"
)

const (
	lease = 10 * time.Second
	// Without a deadline of its own, a call waits no longer than the lease.
	patience = time.Hour
)

func main() {
	options := callers.Parse()
	settings, err := redis.ParseURL(options.URLs[0])
	check(err)
	settings.PoolSize = options.Connections()
	locks := redislock.New(redis.NewClient(settings))
	polling := &redislock.Options{RetryStrategy: redislock.LinearBackoff(options.Poll)}
	background, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	version := callers.Version("github.com/bsm/redislock")
	callers.Run(version, options, func(name string) func() {
		lock, err := locks.Obtain(background, name, lease, polling)
		check(err)
		return func() { check(lock.Release(background)) }
	})
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
