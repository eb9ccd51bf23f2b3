//go:build !race

package buffer

// gathers says that parts leave in one writev. The race detector does not see the order that writev makes between its
// caller and who reads at the other end, so that builds for it join the parts and write them.
const gathers = true
