//go:build loud

package main

import "os"

func main() { _, _ = os.Stdout.WriteString("HELLO\n") }
