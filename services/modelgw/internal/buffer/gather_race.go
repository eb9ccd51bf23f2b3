//go:build race

package buffer

const gathers = false
