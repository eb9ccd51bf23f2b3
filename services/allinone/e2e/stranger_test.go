package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// horde is connections without a credential.
type horde struct {
	mu    sync.Mutex
	conns []net.Conn
	work  sync.WaitGroup
}

// connect opens n connections to an address, sends the bytes of begin, and leaves them open. It ignores connections
// that the server closes or refuses.
func (h *horde) connect(address string, n int, begin string) {
	const atOnce = 50
	for first := range atOnce {
		h.work.Go(func() {
			for range (n + atOnce - 1 - first) / atOnce {
				conn, err := net.DialTimeout("tcp", address, patience)
				if err != nil {
					continue
				}
				h.mu.Lock()
				h.conns = append(h.conns, conn)
				h.mu.Unlock()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				_, _ = io.WriteString(conn, begin)
			}
		})
	}
}

func (h *horde) leave() {
	h.work.Wait()
	for _, conn := range h.conns {
		conn.Close()
	}
}

// residentMiB is the most memory that a process has had.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kB >> 10
}

// Connections without a credential exhaust neither a server's memory nor its capacity: at every address a caller with a
// credential is answered, and connected callers stay connected.
func TestStrangersSilenceNobody(t *testing.T) {
	t.Parallel()
	const (
		files   = 400
		idle    = 5000
		bodies  = 150
		maxMiB  = 256
		preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" // and empty settings
	)
	half := "POST /api/v1/projects/default/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6291456\r\n\r\n" + strings.Repeat(" ", 1<<20)
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.files = files
		c := h.serve()
		watch, err := healthv1.NewHealthClient(c.conn).Watch(within(t), &healthv1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.NoError(t, err)

		var strangers horde
		defer strangers.leave()
		for _, address := range h.addresses {
			n := idle
			if f != single {
				// 5,000 at each of five addresses are more than this process, which has all of them and the caller's
				// own, may have open. 500 are still more than each server may have, and test the bounds.
				n = idle / 10
			}
			strangers.connect(address, bodies, half)
			strangers.connect(address, n, preface)
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer conn.Close()
			large := &healthv1.HealthCheckRequest{Service: strings.Repeat("x", 15<<20)}
			for i := range 20 {
				strangers.work.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					_, _ = healthv1.NewHealthClient(conn).Check(ctx, large)
					_ = conn.Invoke(ctx, fmt.Sprintf("/made.up.Service%d/%s", i, strings.Repeat("x", 3000)), large, large)
				})
			}
		}
		eventually(t, func() bool {
			asks := h.dial(h.address())
			defer asks.leave()
			_, err := asks.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
			return err == nil
		}, "while strangers come, a caller with a credential is answered, though perhaps not on the first connection")
		strangers.work.Wait()
		begin := time.Now()
		asks := h.dial(h.address())
		defer asks.leave()
		_, err = asks.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
		require.NoError(t, err, "a caller with a credential")
		t.Logf("the answer took %v", time.Since(begin)) // No test asserts a time: within is the patience of a loaded machine.
		require.NoError(t, watch.Context().Err())
		_, err = c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
		require.NoError(t, err, "a caller who was connected before")

		for name, p := range h.processes {
			mib := residentMiB(t, p.cmd.Process.Pid)
			t.Logf("%s has had %d MiB", name, mib)
			assert.Less(t, mib, maxMiB, name)
		}
		r, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+h.address()+"/metrics", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+h.token())
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		require.NoError(t, err)
		page, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.NotContains(t, string(page), "made.up")
		assert.Contains(t, string(page), `method="/evalfleet.agent.v1.EvalService/ListEvals",service="gateway"`)
	})
}
