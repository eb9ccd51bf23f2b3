// Package enginetest provides tests and benchmarks with a Docker Engine: the one that answers on this machine, else one
// of its own.
//
// An engine of its own has a socket and a data root of its own, touches neither networks nor firewall, and is removed
// with its mounts when it is stopped. It requires root, and Debian's docker.io, which the project's set-up installs. It
// also runs in a container that may mount: its data are then in memory, since the layers of a container cannot hold
// those of another engine.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/config"
)

const (
	// Variable forces an engine of the test's own if it is `own`.
	Variable = "EVALFLEET_TEST_ENGINE"

	defaultHost  = "unix:///var/run/docker.sock"
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
	pingTimeout  = 10 * time.Second
)

// Engine is a Docker Engine.
type Engine struct {
	// Host is the engine's address: unix:// and a path.
	Host string
	// Own reports whether it was started for the test.
	Own bool

	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Find returns the engine that answers at DOCKER_HOST or the usual place, and starts one if none does. Stop must be
// called.
func Find(ctx context.Context) (*Engine, error) {
	if own, _ := config.Env(Variable); own == "own" {
		return Start(ctx)
	}
	host := defaultHost
	if named, ok := config.Env("DOCKER_HOST"); ok && named != "" {
		host = named
	}
	if answers(ctx, host) {
		return &Engine{Host: host}, nil
	}
	return Start(ctx)
}

// Start starts an engine. If this program may not or Docker is not installed, it fails with an error that names the
// remedy.
func Start(ctx context.Context) (*Engine, error) {
	program, err := lookup("dockerd")
	switch {
	case err != nil:
		return nil, fmt.Errorf("no Docker Engine answers, and there is none to start: %w; install Debian's docker.io (`make setup` does, as root)", err)
	case os.Geteuid() != 0:
		return nil, errors.New("no Docker Engine answers, and only root may start one; start Docker, or name one that answers in DOCKER_HOST")
	}
	var faults error
	for _, storage := range []string{"overlay2", "vfs"} {
		e, err := start(ctx, program, storage)
		if err == nil {
			return e, nil
		}
		if faults = errors.Join(faults, fmt.Errorf("with storage %s: %w", storage, err)); ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("the Docker Engine does not start: %w", faults)
}

// script starts the engine in a mount namespace of its own, so that none of its mounts remains or is visible, and in a
// network namespace of its own, since an engine without a bridge removes docker0, which the machine's engine needs. An
// engine uses the system's containerd if it finds one; this one must start its own.
const script = `
[ ! -d /run/containerd ] || mount -t tmpfs tmpfs /run/containerd || exit 1
[ -z "$MEMORY" ] || mount -t tmpfs tmpfs "$DIR/data" || exit 1
exec "$PROGRAM" --config-file "$DIR/daemon.json" --host "unix://$DIR/d.sock" --data-root "$DIR/data" --exec-root "$DIR/run" --pidfile "$DIR/pid" \
	--storage-driver "$STORAGE" --bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --userland-proxy=false \
	--oom-score-adjust 0 --shutdown-timeout 5 --log-level warn
`

func start(ctx context.Context, program, storage string) (_ *Engine, err error) {
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "d.sock"), Own: true, dir: dir, exited: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	for _, folder := range []string{"data", "run"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o711); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), []byte("{}"), 0o600); err != nil {
		return nil, err
	}
	logName := filepath.Join(dir, "log")
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	memory := ""
	if storage != "vfs" && layered(dir) {
		memory = "yes"
	}
	e.cmd = exec.Command("/bin/sh", "-c", script) // not bound to ctx: it lives until Stop
	e.cmd.Env = []string{
		"PATH=" + strings.Join(folders(), ":"), "HOME=/root", "DIR=" + dir, "PROGRAM=" + program, "STORAGE=" + storage, "MEMORY=" + memory,
	}
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// The engine is signalled when the thread that started it ends, so the thread stays, also for other processes that
		// were started from it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			_ = e.cmd.Wait()
			close(e.exited)
		}
	}()
	if err := <-started; err != nil {
		e.cmd = nil
		return nil, fmt.Errorf("start it in namespaces of its own: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !answers(ctx, e.Host) {
		select {
		case <-e.exited:
			return nil, fmt.Errorf("it ended: %s", tail(logName))
		case <-ctx.Done():
			return nil, fmt.Errorf("it does not answer: %w: %s", ctx.Err(), tail(logName))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return e, nil
}

// Stop ends the engine, if it is the test's own, with all its containers and data.
func (e *Engine) Stop() error {
	if e.dir == "" {
		return nil
	}
	if e.cmd != nil {
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-e.exited:
		case <-time.After(stopTimeout):
			_ = e.cmd.Process.Kill()
			<-e.exited
		}
	}
	return os.RemoveAll(e.dir)
}

// answers reports whether an engine answers at a host of this machine.
func answers(ctx context.Context, host string) bool {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
	return resp.StatusCode == http.StatusOK
}

// layered reports whether a folder is in layers, as the files of a container are, which cannot hold other layers.
func layered(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// folders are where the programs of an engine may be; PATH of a user often lacks the administrator's.
func folders() []string {
	path, _ := config.Env("PATH")
	return append(filepath.SplitList(path), "/usr/local/sbin", "/usr/sbin", "/sbin")
}

func lookup(name string) (string, error) {
	for _, dir := range folders() {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("no program %s", name)
}

// tail is the end of a log.
func tail(name string) string {
	const most = 4 << 10
	data, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-most):]))
}
