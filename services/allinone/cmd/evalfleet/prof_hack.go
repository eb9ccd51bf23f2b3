package main

import (
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

func init() {
	if os.Getenv("PROF") == "" {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	go func() {
		for range c {
			f, _ := os.Create(os.Getenv("PROF"))
			pprof.StartCPUProfile(f)
			time.Sleep(15 * time.Second)
			pprof.StopCPUProfile()
			f.Close()
			g, _ := os.Create(os.Getenv("PROF") + ".heap")
			pprof.Lookup("allocs").WriteTo(g, 0)
			g.Close()
		}
	}()
}
