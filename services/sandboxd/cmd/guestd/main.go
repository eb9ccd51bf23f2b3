// Command guestd is the program inside a sandbox. Hosts start it; it is not meant for people.
package main

import (
	"os"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

func main() { os.Exit(guest.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
