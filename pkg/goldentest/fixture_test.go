package goldentest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFixture is a driver whose cases end in every way. It runs in a process of its own.
func TestFixture(t *testing.T) {
	if os.Getenv(inFixture) == "" {
		return
	}
	var ends, hangs []Case
	for _, c := range Load(t, "core/demo.jsonl") {
		if strings.HasPrefix(c.Op(), "hang") {
			hangs = append(hangs, c)
		} else {
			ends = append(ends, c)
		}
	}
	Run(t, "demo", ends, driveDemo)
	Run(t, "hangs", hangs, driveDemo, Timeout(50*time.Millisecond), func(e *execution) { e.grace = 50 * time.Millisecond })
	Run(t, "other", Load(t, "tools/demo*.json"), func(t *T, c Case) {
		t.Equal(c.At("result"), map[string]any{"text": "Hello, Ada."})
	}, Parallel())
}

func driveDemo(t *T, c Case) {
	switch c.Op() {
	case "double":
		n, err := c.At("input").(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		t.Equal(c.At("expect"), 2*n)
	case "panic":
		panic("on purpose")
	case "hang":
		<-t.Context().Done()
	case "hang for ever":
		<-make(chan int)
	case "block":
		t.Bubble(func(*T) { <-make(chan int) })
	case "leave behind":
		t.Bubble(func(*T) { go func() { <-make(chan int) }() })
		t.Error("not reached")
	default:
		t.Skipf("no driver for %q", c.Op())
	}
}
