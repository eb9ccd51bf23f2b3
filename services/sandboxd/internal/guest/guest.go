// Package guest is guestd, the program inside a sandbox: it runs commands and keeps their results, reads and writes
// files, and serves these operations to the host over the one connection that it dials. It trusts the host and nothing
// else in the sandbox.
package guest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/bound"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	"github.com/evalfleet/evalfleet/pkg/version"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/closeonexec"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/command"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/editor"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/link"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
)

// Descriptors that the launcher gives to `guestd init`.
const (
	SpecFD    = 3 // the launcher writes the box.Spec here
	OutcomeFD = 4 // the box.Outcome is answered here
	FirstFD   = 5 // descriptors that the specification names begin here
)

// ProcFD is the socket that the launcher gives to `guestd proc`.
const ProcFD = 3

// SocketName is the host's socket in the control folder.
const SocketName = "h.sock"

// The collector works harder before the guest's own memory reaches its bound (bound.GuestMemory). Below that, it works
// as ever: a heap that fits into the processor's caches is worth more than a collection saved.
const memoryMargin = 16 << 20

// Main runs the guest program and returns its exit code. Its first argument is the role: `init` is the first process of
// a sandbox, `proc` a helper of the launcher that mounts a /proc for it, `container` the first process of a container,
// `text-editor` a helper that reads one request and prints one answer, `version` prints the version.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	what := ""
	if len(args) > 0 {
		what = args[0]
	}
	switch what {
	case "init":
		return ended(runInit(), stderr)
	case "proc":
		return ended(box.HandProc(ProcFD, 0), stderr)
	case "container":
		return ended(runContainer(), stderr)
	case "text-editor":
		return editor.Main(stdin, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, version.String())
		return 0
	}
	fmt.Fprintln(stderr, "guestd: give one of: init, proc, container, text-editor, version")
	return 2
}

// ExitTransient is the exit code of a guest program that failed for a reason that may be over soon (see
// [box.Transient]): EX_TEMPFAIL of sysexits.h.
const ExitTransient = 75

// ended reports why a part of the program ended, and returns its exit code.
func ended(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "guestd:", err)
	if box.Transient(err) {
		return ExitTransient
	}
	return 1
}

// runInit builds the box, reports to the launcher, and serves until the sandbox ends.
func runInit() error {
	if err := closeonexec.MarkAll(); err != nil {
		return err
	}
	specFile, outcomeFile := os.NewFile(SpecFD, "specification"), os.NewFile(OutcomeFD, "outcome")
	spec, err := box.ReadSpec(specFile)
	if err != nil {
		return err
	}
	specFile.Close()
	g, outcome, err := begin(&spec)
	if writeErr := json.NewEncoder(outcomeFile).Encode(outcome); writeErr != nil {
		return errors.Join(err, fmt.Errorf("the launcher is gone: %w", writeErr))
	}
	outcomeFile.Close()
	if err != nil {
		return err
	}
	return g.serve(spec.Guest.Control.FD)
}

// begin enters the box and makes the guest ready to serve.
func begin(spec *box.Spec) (*guest, box.Outcome, error) {
	_ = os.WriteFile("/proc/self/comm", []byte("guestd"), 0) // it was started by a descriptor, whose number would be its name
	// The guest waits far more than it computes; on one processor no thread has to be woken for another goroutine to go
	// on.
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(bound.GuestMemory(spec.Guest.KeptBytes) - memoryMargin)
	unix.Umask(0o022)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	weaker, err := box.Enter(spec)
	if err != nil {
		return nil, failed(err), err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, failed(err), err
	}
	rooms, err := checksFolder(spec.Guest.ChecksDir)
	if err != nil {
		return nil, failed(&box.PartError{Part: "folder for checks", Err: spec.OwnDisk(err)}), err
	}
	var checkCaps []uintptr
	table, err := process.NewTable(process.Config{
		Prepare: func() error {
			more, err := box.HardenThread(spec.Command)
			weaker = append(weaker, more...)
			return err
		},
		PrepareApart: func() error {
			caps, more, err := box.ConfineChecks(checkFolders(&spec.Guest))
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				caps = nil // a check is the guest's own user, who has no need of any
			}
			checkCaps, weaker = caps, append(weaker, more...)
			_, err = box.HardenThread(spec.Command, caps...) // what is weaker was found by the first thread
			return err
		},
		CgroupFD: spec.Command.Cgroup.FD, OOMScoreAdj: spec.Command.OOMScoreAdj, ProcessLimits: processLimits(spec.Command.Limits), Logger: log,
	})
	if err != nil {
		return nil, failed(err), err
	}
	if err := box.Confine(); err != nil {
		return nil, failed(err), err
	}
	runner, err := command.NewRunner(command.Config{
		Table: table, OOMCount: oomCounter(spec.Guest.OOMFD), KeptBytes: spec.Guest.KeptBytes, Rooms: rooms, CheckCapabilities: checkCaps,
		AgentFolders: agentFolders(&spec.Guest),
	})
	if err != nil {
		return nil, failed(err), err
	}
	g := &guest{bootID: rand.Text(), table: table, runner: runner, log: log, notes: weaker}
	if err := g.takeSignals(!spec.Isolated && !spec.Contained); err != nil {
		return nil, failed(err), err
	}
	g.setDeadline(time.Unix(spec.Guest.DeadlineUnix, 0), spec.Guest.DeadlineUnix > 0)
	g.orphanTimeout.Store(int64(time.Duration(spec.Guest.OrphanSeconds) * time.Second))
	return g, box.Outcome{Weaker: weaker}, nil
}

// checksFolder makes the folder below which checks work, before any command could put another in its place. Others may
// only walk through it.
func checksFolder(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// systemFolder fits the folders of programs and their configuration.
var systemFolder = regexp.MustCompile(`^/(bin|sbin|usr|lib[^/]*|etc|dev|proc|sys|boot)(/|$)`)

// checkFolders are the folders that a check may change: that of checks, and those of the agent. It is none where the
// agent is root, to whom all of the box belongs.
func checkFolders(spec *box.Guest) []string {
	if who, err := account.Lookup(spec.User); err == nil && who.UID == 0 {
		return nil
	}
	return append(found(spec.ChecksDir), agentFolders(spec)...)
}

// agentFolders are the existing folders of the agent.
func agentFolders(spec *box.Guest) []string {
	home := ""
	if who, err := account.Lookup(spec.User); err == nil && !systemFolder.MatchString(who.Home) {
		home = who.Home // that of daemon and its kind is no person's
	}
	return found(spec.Workdir, home, "/tmp", "/var/tmp", "/dev/shm")
}

// found gives those folders that are there, each once, by paths without links.
func found(folders ...string) []string {
	var there []string
	for _, folder := range folders {
		if !filepath.IsAbs(folder) {
			continue // a user without a home
		}
		folder, err := filepath.EvalSymlinks(folder)
		if err != nil || folder == "/" || slices.Contains(there, folder) {
			continue
		}
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			there = append(there, folder)
		}
	}
	return there
}

func failed(err error) box.Outcome {
	outcome := box.Outcome{Failed: "guest", Reason: err.Error(), Transient: box.Transient(err)}
	if part, ok := errors.AsType[*box.PartError](err); ok {
		outcome.Failed, outcome.Reason = part.Part, part.Err.Error()
	}
	return outcome
}

func processLimits(limits []box.Limit) []process.Limit {
	out := make([]process.Limit, len(limits))
	for i, l := range limits {
		out[i] = process.Limit(l)
	}
	return out
}

// serve serves every connection to the host, whose socket lies in the folder control, one after the other, until the
// sandbox ends.
func (g *guest) serve(control int) error {
	g.server = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.UnaryInterceptor(unaryErrors), grpc.StreamInterceptor(streamErrors), grpc.WaitForHandlers(false), grpc.NumStreamWorkers(4),
	)
	guestv1.RegisterGuestServiceServer(g.server, g)
	folder := "/proc/self/fd/" + strconv.Itoa(control)
	return g.server.Serve(link.NewListener(link.Config{
		Dial: func() (net.Conn, error) { return dialHost(folder) }, Idle: g.checkOrphaned,
		Watch: func() (<-chan struct{}, func(), error) { return link.WatchFolder(folder) },
	}))
}

// dialHost connects to the host's socket in the control folder. Only this process has the folder: the way leads over
// its own descriptors, which no command can read.
func dialHost(control string) (net.Conn, error) {
	return (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", control+"/"+SocketName)
}
