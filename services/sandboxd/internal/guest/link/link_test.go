package link_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/link"
)

func TestTheHostIsFoundAgainWithinMilliseconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(10 * time.Second)
		var idleSince time.Time
		l := link.NewListener(link.Config{Dial: func() (net.Conn, error) {
			if time.Now().Before(up) {
				return nil, errors.New("nobody listens")
			}
			ours, _ := net.Pipe()
			return ours, nil
		}, Idle: func(since time.Time) { idleSince = since }})
		begin := time.Now()
		c, err := l.Accept()
		require.NoError(t, err)
		assert.Less(t, time.Since(up), 26*time.Millisecond)
		assert.Equal(t, begin, idleSince)

		next := make(chan net.Conn)
		go func() {
			c, err := l.Accept()
			if assert.NoError(t, err) {
				next <- c
			}
		}()
		synctest.Wait()
		select {
		case <-next:
			t.Fatal("a second connection while the first is open")
		default:
		}
		at := time.Now()
		require.NoError(t, c.Close())
		require.Error(t, errors.Join(c.Close(), errors.New("closing twice frees one place only")))
		c = <-next
		assert.Equal(t, at, time.Now(), "it dials at once")
		assert.Equal(t, at, idleSince)

		done := make(chan error)
		go func() { _, err := l.Accept(); done <- err }()
		require.NoError(t, l.Close())
		assert.ErrorIs(t, <-done, net.ErrClosed)
		require.NoError(t, c.Close())
	})
}

func TestALongAbsenceCostsFewDialsAndEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		watch error
		dials int           // most in the last hour of the absence
		late  time.Duration // most after the host has connected
	}{
		"watched":      {nil, 3600 / 10, 2 * time.Millisecond},
		"cannot watch": {errors.New("too many watches"), 4 * 3600, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				up := begin.Add(2 * time.Hour)
				changes, watching, dials := make(chan struct{}, 1), false, 0
				l := link.NewListener(link.Config{
					Dial: func() (net.Conn, error) {
						if time.Since(begin) > time.Hour {
							dials++
						}
						if time.Now().Before(up) {
							return nil, errors.New("nobody listens")
						}
						ours, _ := net.Pipe()
						return ours, nil
					},
					Watch: func() (<-chan struct{}, func(), error) {
						watching = tt.watch == nil
						return changes, func() { watching = false }, tt.watch
					},
				})
				go func() {
					time.Sleep(time.Until(up) - time.Millisecond) // the socket is there a moment before somebody listens
					changes <- struct{}{}
				}()
				c, err := l.Accept()
				require.NoError(t, err)
				assert.LessOrEqual(t, time.Since(up), tt.late)
				assert.LessOrEqual(t, dials, tt.dials+3)
				assert.False(t, watching, "who has a host watches no longer")
				require.NoError(t, c.Close())
				require.NoError(t, l.Close())
			})
		})
	}
}

func TestAFolderTellsOfANewSocketAndOfItsRights(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	changed, stop, err := link.WatchFolder(folder)
	require.NoError(t, err)
	defer stop()
	file := filepath.Join(folder, "h.sock")
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	require.NoError(t, err)
	defer socket.Close()
	waittest.For(t, changed, "the news of the socket")
	require.NoError(t, os.Chmod(file, 0o666))
	waittest.For(t, changed, "the news of its rights")
	_, _, err = link.WatchFolder(filepath.Join(folder, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
