package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// form is how the services are spread over processes. To clients all forms are the same.
type form string

const (
	// single is `evalfleet serve`: all services in one process.
	single form = "single"
	// five is a process for each service, from a binary of its own, with a data directory of its own; they share the
	// token's file and the folder of bodies.
	five form = "five"
	// targets is five by `evalfleet serve --target`.
	targets form = "targets"
)

// inEachForm runs a test on the single binary and on five processes.
func inEachForm(t *testing.T, test func(t *testing.T, f form)) {
	for _, f := range []form{single, five} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// services are the names of the processes, callees first.
func (f form) services() []string {
	if f == single {
		return []string{"evalfleet"}
	}
	return []string{"modelgw", "sandboxd", "toolexec", "agentorch", "gateway"}
}

// front is the process that clients talk to.
func (f form) front() string { services := f.services(); return services[len(services)-1] }

// process is a server that was started.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string // its file
	exited chan struct{}
	err    error // once exited
}

func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) await(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		require.Failf(t, "a server goes on", "%s, process %d", p.name, p.cmd.Process.Pid)
	}
}

// launch starts the processes that do not run, and waits for none that ran before: a process keeps its address.
func (h *home) launch() {
	h.t.Helper()
	for _, name := range h.form.services() {
		if p := h.processes[name]; p != nil && !p.over() {
			continue
		}
		h.begun(name)
		if h.addresses[name] == "" {
			h.awaitServing(name)
		}
	}
}

// serve launches, waits until all processes accept calls, and returns a client.
func (h *home) serve() *client {
	h.t.Helper()
	h.launch()
	for _, name := range h.form.services() {
		h.awaitServing(name)
	}
	return h.connect()
}

// begun starts a process.
func (h *home) begun(name string) {
	h.t.Helper()
	h.started++
	log, err := os.Create(filepath.Join(h.logs, name+time.Now().Format("-150405.000000")+".log"))
	require.NoError(h.t, err)
	defer log.Close()
	listen := h.addresses[name]
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	var c *exec.Cmd
	switch h.form {
	case single:
		c = h.command("serve", "--data-dir", h.dir, "--listen", listen)
	case targets:
		c = h.command("serve", "--target", name, "--data-dir", h.dirOf(name), "--listen", listen)
	case five:
		c = h.command()
		c.Path = filepath.Join(filepath.Dir(c.Path), name)
		c.Env = append(c.Env, "EVALFLEET_DATA_DIR="+h.dirOf(name), "EVALFLEET_LISTEN="+listen)
	}
	c.Env = append(c.Env, "EVALFLEET_LOG_FORMAT=json")
	for service, file := range h.configs {
		if service == name || h.form == single {
			c.Env = append(c.Env, "EVALFLEET_CONFIG="+file)
		}
	}
	if h.form != single {
		c.Env = append(c.Env, "EVALFLEET_TOKEN_FILE="+h.tokenFile, "EVALFLEET_BLOB_DIR="+filepath.Join(filepath.Dir(h.dir), "blobs"))
		for peer, address := range h.addresses {
			c.Env = append(c.Env, "EVALFLEET_"+strings.ToUpper(peer)+"_ADDRESS="+address)
		}
	}
	if h.files > 0 {
		c.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, h.files), c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
	}
	c.Stdout, c.Stderr = log, log
	require.NoError(h.t, c.Start())
	p := &process{name: name, cmd: c, log: log.Name(), exited: make(chan struct{})}
	go func() {
		p.err = c.Wait()
		close(p.exited)
	}()
	h.processes[name] = p
}

// dirOf is the data directory of a service.
func (h *home) dirOf(name string) string {
	if h.form == single {
		return h.dir
	}
	return filepath.Join(filepath.Dir(h.dir), name)
}

// awaitServing waits until a process accepts calls. A process whose old port was taken for a moment is restarted.
func (h *home) awaitServing(name string) {
	h.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		p := h.processes[name]
		if address, ok := h.announced(p); ok {
			h.addresses[name] = address
			return
		}
		select {
		case <-p.exited:
			said, err := os.ReadFile(p.log)
			require.NoError(h.t, err)
			require.Contains(h.t, string(said), " is in use; ", "%s ended while it started: %v", name, p.err)
			<-time.After(100 * time.Millisecond)
			h.begun(name)
		case <-deadline:
			require.Failf(h.t, "no address", "%s has not said where it takes calls", name)
		case <-tick.C:
		}
	}
}

// announced reads the address of a process: from the lock of its data directory, or from its log.
func (h *home) announced(p *process) (string, bool) {
	if h.form != five {
		held, ok := holderOf(h.dirOf(p.name))
		return held.Address, ok && held.PID == p.cmd.Process.Pid && held.Address != ""
	}
	text, err := os.ReadFile(p.log)
	require.NoError(h.t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			return line.Address, true
		}
	}
	return "", false
}

// holder is the content of the lock of a data directory.
type holder struct {
	Address string `json:"address"`
	PID     int    `json:"pid"`
}

func holderOf(dir string) (holder, bool) {
	var held holder
	text, err := os.ReadFile(filepath.Join(dir, "lock"))
	return held, err == nil && json.Unmarshal(text, &held) == nil
}

// stop ends the servers as an operator does, callers first, and asks that they end well.
func (h *home) stop() {
	h.t.Helper()
	for _, name := range slices.Backward(h.form.services()) {
		p := h.processes[name]
		require.NoError(h.t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.await(h.t)
		assert.NoError(h.t, p.err, "%s is asked to stop and exits with 0", name)
	}
}

// kill ends servers as a power cut does: those named, or all.
func (h *home) kill(names ...string) {
	h.t.Helper()
	if names == nil {
		names = h.form.services()
	}
	for _, name := range names {
		require.NoError(h.t, h.processes[name].cmd.Process.Kill())
	}
	for _, name := range names {
		h.processes[name].await(h.t)
	}
}

// death returns the name of a server that runs now, once it has ended.
func (h *home) death() <-chan string {
	dead := make(chan string, len(h.processes))
	for name, p := range h.processes {
		go func() {
			<-p.exited
			dead <- name
		}()
	}
	return dead
}

// died waits for a server to be killed by its failpoint. Other servers continue.
func (h *home) died() {
	h.t.Helper()
	var dead *process
	eventually(h.t, func() bool {
		for _, p := range h.processes {
			if p.over() {
				dead = p
			}
		}
		return dead != nil
	}, "a server dies")
	exit, ok := errors.AsType[*exec.ExitError](dead.err)
	require.True(h.t, ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, "%s ended otherwise: %v", dead.name, dead.err)
}

// up reports whether all servers run.
func (h *home) up() bool {
	for _, name := range h.form.services() {
		if p := h.processes[name]; p == nil || p.over() {
			return false
		}
	}
	return true
}

// address is the address for clients.
func (h *home) address() string { return h.addresses[h.form.front()] }
