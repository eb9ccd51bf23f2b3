//go:build !loud

// Command hello is what the tests of programtest build.
package main

import "os"

func main() { _, _ = os.Stdout.WriteString("hello\n") }
