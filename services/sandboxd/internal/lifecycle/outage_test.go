package lifecycle_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/effect/memory"
	effectsqlite "github.com/evalfleet/evalfleet/pkg/effect/sqlite"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

// TestAnOutageOfTheStoreStrandsNoSandbox lets the disk of the records fail during the creation of a box. The call, or
// one of its caller's repetitions with the same key, returns the sandbox, and there is one box.
func TestAnOutageOfTheStoreStrandsNoSandbox(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{time.Second, 45 * time.Second, 10 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			disk := sqlitefault.New()
			path := filepath.Join(t.TempDir(), "s.db")
			synctest.Test(t, func(t *testing.T) {
				db, err := sqlite.Open(t.Context(), path, sqlite.Options{VFS: disk.Name()})
				require.NoError(t, err)
				store, err := lifecycle.NewStore(t.Context(), db)
				require.NoError(t, err)
				ledger, err := effectsqlite.New(t.Context(), db, "sandboxd_effects")
				require.NoError(t, err)
				h := &house{T: t, driver: newPaper(), store: store, ledger: ledger}
				h.start()
				failed := false
				h.driver.hold = func(driver.Spec) {
					if !failed {
						failed = true
						disk.Fail(sqlitefault.Full)
						time.AfterFunc(outage, func() { disk.Fail(sqlitefault.None) })
					}
				}
				var b *lifecycle.Sandbox
				for end := time.Now().Add(2 * outage); b == nil; time.Sleep(time.Second) {
					require.True(t, time.Now().Before(end.Add(time.Minute)), "no sandbox after the outage: %v", err)
					b, err = h.boxes.Create(h.Context(), lifecycle.Creation{Project: "p", Spec: &sandboxv1.SandboxSpec{}, RequestID: "key"})
				}
				assert.Equal(t, lifecycle.Ready, h.state(b.ID))
				require.NoError(t, h.use(b.ID))
				h.driver.mu.Lock()
				assert.Len(t, h.driver.boxes, 1)
				h.driver.kill(b.ID)
				h.driver.mu.Unlock()
				h.stop()
				require.NoError(t, db.Close())
			})
		})
	}
}

// TestAnOutageOfTheStoreEndsNoLeaseThatIsRenewed lets the disk of the records fail for longer than a lease. The client
// renews the lease as agentorch does, and its next renewal arrives only after the reconciler's next look, or before.
func TestAnOutageOfTheStoreEndsNoLeaseThatIsRenewed(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{9 * time.Minute, 15*time.Minute + time.Second, 15*time.Minute + 4*time.Second, 15*time.Minute + 6*time.Second, 15*time.Minute + 9*time.Second} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			disk := sqlitefault.New()
			path := filepath.Join(t.TempDir(), "s.db")
			synctest.Test(t, func(t *testing.T) {
				db, err := sqlite.Open(t.Context(), path, sqlite.Options{VFS: disk.Name()})
				require.NoError(t, err)
				store, err := lifecycle.NewStore(t.Context(), db)
				require.NoError(t, err)
				h := &house{T: t, driver: newPaper(), store: store, ledger: &memory.Ledger{}}
				h.start()
				time.Sleep(5 * time.Minute)
				held, left := h.create(lease(10*time.Minute), "held"), h.create(lease(10*time.Minute), "left")
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					for {
						pause := 2 * time.Minute
						if _, _, err := h.boxes.Renew(t.Context(), "p", []string{held.ID}, 0); err != nil {
							pause = 5 * time.Second
						}
						select {
						case <-stop:
							return
						case <-time.After(pause):
						}
					}
				}()
				time.Sleep(time.Minute)
				disk.Fail(sqlitefault.Full)
				time.Sleep(outage)
				disk.Fail(sqlitefault.None)
				time.Sleep(time.Minute)
				assert.Equal(t, lifecycle.Ready, h.state(held.ID))
				time.Sleep(20 * time.Minute)
				assert.Equal(t, lifecycle.Ready, h.state(held.ID))
				assert.Equal(t, lifecycle.Deleted, h.state(left.ID), "what nobody renews ends")
				close(stop)
				<-stopped
				h.driver.mu.Lock()
				h.driver.kill(held.ID)
				h.driver.mu.Unlock()
				h.stop()
				require.NoError(t, db.Close())
			})
		})
	}
}
