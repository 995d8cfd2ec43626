// Package callers does what ../README.md asks of a program, for the programs that are written in Go: the options,
// the callers, and the line with the results. A program adds the lock.
package callers

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what to do.
type Options struct {
	URLs        []string
	Work        string
	Callers     int
	Seconds     float64
	WarmSeconds float64
	Section     time.Duration
	Pause       time.Duration
	Prefix      string
	Count       int64
	Poll        time.Duration
}

// Acquire waits for the lock with this name, and returns what releases it.
type Acquire func(name string) (release func())

// Connections is the size of go-redis's pool: each goroutine that waits for an answer has a connection of its own, up to the number at
// which more of them cost more than they give.
func (o Options) Connections() int {
	return min(max(o.Callers, 8), 32)
}

// Parse reads the arguments of this process.
func Parse() Options {
	var o Options
	url := flag.String("url", "", "the servers, separated by commas")
	flag.StringVar(&o.Work, "work", "pairs", "pairs, shared or names")
	flag.IntVar(&o.Callers, "callers", 1, "how many")
	flag.Float64Var(&o.Seconds, "seconds", 1, "how long")
	flag.Float64Var(&o.WarmSeconds, "warm-seconds", 0.2, "how long before")
	section := flag.Float64("section-ms", 0, "how long a lock is held")
	pause := flag.Float64("pause-ms", 0, "how long a caller pauses after a release")
	flag.StringVar(&o.Prefix, "name", "peers", "the prefix of all names")
	flag.Int64Var(&o.Count, "count", 1000, "how many names")
	poll := flag.Float64("poll-us", 500, "the pause of a client that polls")
	flag.Parse()
	o.URLs = strings.Split(*url, ",")
	o.Section = time.Duration(*section * float64(time.Millisecond))
	o.Pause = time.Duration(*pause * float64(time.Millisecond))
	o.Poll = time.Duration(*poll * float64(time.Microsecond))
	return o
}

// A section, in nanoseconds: when it was asked for, and how long the wait, the section and the release took.
type section [4]int64

// Run warms up, waits for the start, does the work, and prints the results.
func Run(version string, o Options, acquire Acquire) {
	warm := o
	warm.Work, warm.Seconds, warm.Section = "pairs", o.WarmSeconds, 0
	warm.Pause = 0
	warm.Prefix = fmt.Sprintf("%s/warm/%d", o.Prefix, os.Getpid())
	work(warm, acquire)
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	begin := now()
	sections := work(o, acquire)
	report(version, float64(now()-begin)/1e9, sections)
}

func work(o Options, acquire Acquire) []section {
	end := now() + int64(o.Seconds*1e9)
	var next atomic.Int64
	var wait sync.WaitGroup
	all := make([][]section, o.Callers)
	for caller := range o.Callers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				name, more := o.name(caller, &next, end)
				if !more {
					return
				}
				asked := now()
				release := acquire(name)
				acquired := now()
				if o.Section > 0 {
					time.Sleep(o.Section)
				}
				releasing := now()
				release()
				done := section{asked, acquired - asked, releasing - acquired, now() - releasing}
				all[caller] = append(all[caller], done)
				if o.Pause > 0 {
					time.Sleep(o.Pause)
				}
			}
		}()
	}
	wait.Wait()
	var sections []section
	for _, some := range all {
		sections = append(sections, some...)
	}
	return sections
}

// The name that the caller locks next, if it is not done.
func (o Options) name(caller int, next *atomic.Int64, end int64) (string, bool) {
	switch o.Work {
	case "shared":
		return o.Prefix, now() < end
	case "names":
		number := next.Add(1) - 1
		return fmt.Sprintf("%s/%d", o.Prefix, number), number < o.Count
	default:
		return fmt.Sprintf("%s/%d", o.Prefix, caller), now() < end
	}
}

// More sections are thinned out: the line stays short enough to be read at once.
const most = 50_000

func report(version string, seconds float64, sections []section) {
	every := max(1, (len(sections)+most-1)/most)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintf(out, `{"version":%q,"sections":%d,"seconds":%f,"every":%d,"times":[`,
		version, len(sections), seconds, every)
	for i := 0; i < len(sections); i += every {
		if i > 0 {
			out.WriteByte(',')
		}
		s := sections[i]
		fmt.Fprintf(out, "[%d,%d,%d,%d]", s[0], s[1], s[2], s[3])
	}
	fmt.Fprintln(out, "]}")
}

// Nanoseconds of the clock that all processes of a machine share; Go's own hides its origin.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}
