package sqlite

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAppend measures durable appends of a 1 KiB row, each caller strictly one after another, and
// BenchmarkRawLog what a bare file with group commit makes of the same load on the same disk: the upper bound.
// Compare the two rows/s of one run.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			db, err := Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), Options{})
			require.NoError(b, err)
			defer func() { require.NoError(b, db.Close()) }()
			require.NoError(b, db.Migrate(b.Context(), "bench", []string{
				`CREATE TABLE events (off INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (run, seq))`,
			}))
			body := make([]byte, 1024)
			before := db.Stats()
			spread(b, callers, func(caller, n int) {
				err := db.Write(b.Context(), func(tx *Tx) error {
					_, err := tx.Exec("INSERT INTO events (run, seq, body) VALUES (?, ?, ?)", caller, n, body)
					return err
				})
				if err != nil {
					b.Error(err)
				}
			})
			after := db.Stats()
			b.ReportMetric(float64(after.Writes-before.Writes)/float64(after.Commits-before.Commits), "rows/commit")
		})
	}
}

func BenchmarkRawLog(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "raw.log"))
			require.NoError(b, err)
			l := &rawLog{file: f, queue: make(chan rawAppend, 1024)}
			done := make(chan struct{})
			go func() { defer close(done); l.run() }()
			body := make([]byte, 1024)
			spread(b, callers, func(int, int) {
				if err := l.append(body); err != nil {
					b.Error(err)
				}
			})
			close(l.queue)
			<-done
			require.NoError(b, f.Close())
		})
	}
}

// BenchmarkRead measures one indexed row by a cached statement.
func BenchmarkRead(b *testing.B) {
	db, err := Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, db.Close()) }()
	require.NoError(b, db.Migrate(b.Context(), "bench", []string{
		`CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)`,
		`INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, randomblob(1024) FROM n`,
	}))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			var body []byte
			err := db.Read(b.Context(), func(v *View) error {
				return v.QueryRow("SELECT body FROM t WHERE id = ?", i%1000+1).Scan(&body)
			})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// spread runs work b.N times over callers goroutines, each with a counter of its own, and reports the rate.
func spread(b *testing.B, callers int, work func(caller, n int)) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for n := 0; left.Add(-1) >= 0; n++ {
				work(caller, n)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// rawLog appends records to a file and syncs once for all that wait.
type rawLog struct {
	file  *os.File
	queue chan rawAppend
}

type rawAppend struct {
	body []byte
	done chan error
}

func (l *rawLog) append(body []byte) error {
	a := rawAppend{body: body, done: make(chan error, 1)}
	l.queue <- a
	return <-a.done
}

func (l *rawLog) run() {
	for first := range l.queue {
		batch := []rawAppend{first}
		for len(l.queue) > 0 {
			batch = append(batch, <-l.queue)
		}
		var buf []byte
		for _, a := range batch {
			buf = append(buf, a.body...)
		}
		_, err := l.file.Write(buf)
		if err == nil {
			err = l.file.Sync()
		}
		for _, a := range batch {
			a.done <- err
		}
	}
}
