// Package bound holds the bounds on what the platform reads from outside: files, archives, data sets, requests and
// connections. Each is a constant whose comment states its unit and what happens beyond it, so that one page
// (docs/bounds.md, generated from this package) lists them all.
//
// Bounds on concurrent work, which an operator tunes, are configuration of their owner.
package bound
