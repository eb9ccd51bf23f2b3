package sqlite

import (
	"sync"

	"modernc.org/libc"
)

// keepBlocks makes the allocator below SQLite keep a block of memory for each size of values. It hands out the values
// of one size (a power of two) from blocks of 64 KiB, and unmaps a block when its last value is freed. A statement
// frees what it has allocated, so that without a value that stays nearly every statement maps and unmaps blocks: some
// 5 % of the processor time of a write.
var keepBlocks = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	for size := libc.Tsize_t(16); size <= 16<<10; size *= 2 {
		libc.Xmalloc(tls, size) // never freed
	}
})
