package e2e_test

import (
	"context"
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

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// patience bounds every wait of these tests. It is far above all real durations here, so that only a hang reaches it.
const patience = 8 * time.Minute

// slots bounds the concurrent homes: the tests share two processors.
var slots = make(chan struct{}, 2)

// home is an installation and its clients: servers in one of the forms, and commands.
type home struct {
	t     *testing.T
	build *build
	form  form
	dir   string   // the data directory of the single binary, and of commands
	logs  string   // the folder of the servers' logs
	env   []string // beside PATH and HOME
	files int      // how many files a server may open; 0 is as many as this process
	// configs are the configuration files of services that have one, by name.
	configs map[string]string
	// tokenFile is the path of the token.
	tokenFile string
	// processes are the servers of the last start, and addresses their addresses, by name.
	processes map[string]*process
	addresses map[string]string
	started   int
}

// newHome creates an empty installation. The environment of its servers and commands is env, PATH and HOME, and nothing
// else of this process's environment.
func newHome(t *testing.T, b *build, f form, env ...string) *home {
	t.Helper()
	b.program(t) // Before a slot is acquired: the first one builds.
	slots <- struct{}{}
	root, err := os.MkdirTemp("", "evalfleet-e2e-") //nolint:usetesting // sockets lie in it, whose paths must be short
	require.NoError(t, err)
	h := &home{
		t: t, build: b, form: f, dir: filepath.Join(root, "data"), logs: filepath.Join(root, "logs"), env: env,
		configs: map[string]string{}, processes: map[string]*process{}, addresses: map[string]string{},
	}
	h.tokenFile = filepath.Join(root, "token")
	if f == single {
		h.tokenFile = filepath.Join(h.dir, "token")
	}
	require.NoError(t, os.Mkdir(h.logs, 0o700))
	t.Cleanup(func() {
		defer func() { <-slots }()
		h.close()
		assert.NoError(t, os.RemoveAll(root))
	})
	return h
}

// command is the program, ready to be started in this home.
func (h *home) command(args ...string) *exec.Cmd {
	c := exec.Command(h.build.program(h.t), args...)
	c.Dir = repository
	// Commands with a server of their own use any port, too.
	c.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(h.dir), "EVALFLEET_LISTEN=127.0.0.1:0", "EVALFLEET_LOG_DIR=" + h.evalLogs(),
	}, h.env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // A test run that is killed leaves no servers.
	return c
}

// evalLogs is the folder in which commands write the logs of evaluations.
func (h *home) evalLogs() string { return filepath.Join(filepath.Dir(h.dir), "eval-logs") }

// configure gives a service a configuration file, in every form.
func (h *home) configure(service string, config object) {
	h.t.Helper()
	h.configs[service] = h.write(service+".json", text(h.t, config))
}

// token is the admin token.
func (h *home) token() string {
	h.t.Helper()
	text, err := os.ReadFile(h.tokenFile)
	require.NoError(h.t, err)
	return strings.TrimSpace(string(text))
}

// close ends everything that a test has left: sandboxes first, since they outlive servers, then the servers, callers
// first. The test's own context has ended by now.
func (h *home) close() {
	if !h.up() && h.started > 0 && h.boxes() > 0 {
		h.env = slices.DeleteFunc(h.env, func(v string) bool { return strings.HasPrefix(v, "EVALFLEET_FAILPOINT") })
		h.serve()
	}
	if h.up() {
		h.removeSandboxes()
	}
	for _, name := range slices.Backward(h.form.services()) {
		p := h.processes[name]
		if p == nil || p.over() {
			continue
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
			assert.NoError(h.t, p.err, "%s is asked to stop and exits with 0", name)
		case <-time.After(patience):
			h.t.Errorf("%s does not stop; it is killed", name)
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
	}
	if h.t.Failed() {
		h.showLogs()
	}
}

// boxes counts the folders of local sandboxes.
func (h *home) boxes() int {
	records, _ := filepath.Glob(filepath.Join(filepath.Dir(h.dir), "*", "sandboxes", "*", "*", "box.json"))
	return len(records)
}

func (h *home) removeSandboxes() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := h.dial(h.address())
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
