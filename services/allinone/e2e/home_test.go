package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// patience bounds every wait of these tests. It is far above what anything takes here, so that only what hangs meets it.
const patience = 90 * time.Second

// slots bounds the homes at work at once: the tests share two processors.
var slots = make(chan struct{}, 2)

// home is a data directory and those who use it: at most one server, and commands.
type home struct {
	t     *testing.T
	build *build
	dir   string   // the data directory
	logs  string   // the folder of the servers' logs
	env   []string // beside PATH and HOME
	// tokenFile is where the token is; empty is the data directory's own.
	tokenFile string
	server    *process
	started   int
}

// newHome makes an empty data directory. Servers and commands there get env beside PATH and HOME, and nothing else of this process's environment.
func newHome(t *testing.T, b *build, env ...string) *home {
	t.Helper()
	b.program(t) // Before a slot is taken: the first one builds.
	slots <- struct{}{}
	root, err := os.MkdirTemp("", "evalfleet-e2e-") //nolint:usetesting // sockets lie in it, whose paths must be short
	require.NoError(t, err)
	h := &home{t: t, build: b, dir: filepath.Join(root, "data"), logs: filepath.Join(root, "logs"), env: env}
	require.NoError(t, os.Mkdir(h.logs, 0o700))
	t.Cleanup(func() {
		h.close()
		assert.NoError(t, os.RemoveAll(root))
		<-slots
	})
	return h
}

// process is a server that was started.
type process struct {
	cmd     *exec.Cmd
	address string
	exited  chan struct{}
	err     error // once exited
}

// command is the program, ready to be started in this home.
func (h *home) command(args ...string) *exec.Cmd {
	c := exec.Command(h.build.program(h.t), args...)
	c.Dir = repository
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(h.dir)}, h.env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // A test run that is killed leaves no servers.
	return c
}

// launch starts `evalfleet serve` and does not wait for it.
func (h *home) launch(args ...string) *process {
	h.t.Helper()
	h.started++
	log, err := os.Create(filepath.Join(h.logs, time.Now().Format("150405.000000")+".log"))
	require.NoError(h.t, err)
	defer log.Close()
	c := h.command(append([]string{"serve", "--data-dir", h.dir, "--listen", "127.0.0.1:0"}, args...)...)
	c.Stdout, c.Stderr = log, log
	require.NoError(h.t, c.Start())
	p := &process{cmd: c, exited: make(chan struct{})}
	go func() {
		p.err = c.Wait()
		close(p.exited)
	}()
	h.server = p
	return p
}

// serve starts a server and returns a client of it.
func (h *home) serve(args ...string) *client {
	h.t.Helper()
	p := h.launch(args...)
	require.True(h.t, h.awaitAddress(p), "the server ended while it started: %v", p.err)
	return h.connect()
}

// awaitAddress waits until the server has announced its address, and reports false when it ends before.
func (h *home) awaitAddress(p *process) bool {
	h.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		if holder, ok := h.holder(); ok && holder.PID == p.cmd.Process.Pid && holder.Address != "" {
			p.address = holder.Address
			return true
		}
		select {
		case <-p.exited:
			return false
		case <-deadline:
			require.Fail(h.t, "the server has not announced its address")
		case <-tick.C:
		}
	}
}

// holder is what the lock of a data directory says.
type holder struct {
	Address string `json:"address"`
	PID     int    `json:"pid"`
}

func (h *home) holder() (holder, bool) {
	var held holder
	text, err := os.ReadFile(filepath.Join(h.dir, "lock"))
	return held, err == nil && json.Unmarshal(text, &held) == nil
}

// token is the admin token.
func (h *home) token() string {
	h.t.Helper()
	file := h.tokenFile
	if file == "" {
		file = filepath.Join(h.dir, "token")
	}
	text, err := os.ReadFile(file)
	require.NoError(h.t, err)
	return strings.TrimSpace(string(text))
}

// stop ends the server as an operator does, and asks that it ends well.
func (h *home) stop() {
	h.t.Helper()
	require.NoError(h.t, h.server.cmd.Process.Signal(syscall.SIGTERM))
	h.server.await(h.t)
	assert.NoError(h.t, h.server.err, "a server that is asked to stop exits with 0")
	h.server = nil
}

// kill ends the server as a power cut does.
func (h *home) kill() {
	h.t.Helper()
	require.NoError(h.t, h.server.cmd.Process.Kill())
	h.server.await(h.t)
	h.server = nil
}

// died waits for the server to be killed by its failpoint.
func (h *home) died() {
	h.t.Helper()
	h.server.await(h.t)
	exit, ok := errors.AsType[*exec.ExitError](h.server.err)
	require.True(h.t, ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, "the server ended otherwise: %v", h.server.err)
	h.server = nil
}

func (p *process) await(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		require.Fail(t, "the server goes on")
	}
}

// close ends what a test has left: sandboxes first, since they outlive servers, then the server. The test's own context is over by now.
func (h *home) close() {
	if (h.server == nil || h.server.over()) && h.started > 0 && h.boxes() > 0 {
		h.env = nil // Without the failpoints of the test.
		if p := h.launch(); !h.awaitAddress(p) {
			h.server = nil
		}
	}
	if h.server != nil && !h.server.over() {
		h.removeSandboxes()
		_ = h.server.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-h.server.exited:
			assert.NoError(h.t, h.server.err, "a server that is asked to stop exits with 0")
		case <-time.After(patience):
			h.t.Error("a server does not stop; it is killed")
			_ = h.server.cmd.Process.Kill()
			<-h.server.exited
		}
	}
	if h.t.Failed() {
		h.showLogs()
	}
}

func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// boxes counts the folders of local sandboxes.
func (h *home) boxes() int {
	records, _ := filepath.Glob(filepath.Join(h.dir, "sandboxes", "*", "*", "box.json"))
	return len(records)
}

func (h *home) removeSandboxes() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := h.dial()
	defer c.conn.Close()
	list, err := c.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Parent: project, PageSize: 1000})
	if err != nil {
		h.t.Logf("sandboxes may be left: %v", err)
		return
	}
	for _, box := range list.GetSandboxes() {
		if _, err := c.sandboxes.DeleteSandbox(ctx, &sandboxv1.DeleteSandboxRequest{Name: box.GetName()}); err != nil {
			h.t.Logf("%s may be left: %v", box.GetName(), err)
		}
	}
}

// showLogs prints the end of each server's log.
func (h *home) showLogs() {
	const tail = 12 << 10
	files, _ := filepath.Glob(filepath.Join(h.logs, "*.log"))
	if own := filepath.Join(h.dir, "evalfleet.log"); exists(own) {
		files = append(files, own)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		h.t.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-tail):])
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
