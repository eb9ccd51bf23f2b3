package command

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/process"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/spool"
)

// Bounds that are not the caller's to choose.
const (
	// DefaultOutput and MaxOutput bound what is kept of each stream.
	DefaultOutput = 10 << 20
	MaxOutput     = 64 << 20
	// keptResults bounds the results that wait for their release.
	keptResults = 20_000
	// DefaultGrace lies between asking a process tree to end and killing it.
	DefaultGrace = 2 * time.Second
)

// Config configures how commands run.
type Config struct {
	Table *process.Table
	// Grace lies between asking a process tree to end and killing it; 0 takes DefaultGrace.
	Grace time.Duration
	// OOMCount returns how often the kernel has killed a process of the sandbox for lack of memory; nil if that is
	// unknown.
	OOMCount func() int64
	// KeptBytes bounds the output of all commands that is kept, but for a little of each (spool.Floor); beyond it the
	// oldest of those that have ended lose theirs, and then those that run keep less, explicitly. 0 takes
	// bound.GuestOutputBytes.
	KeptBytes int64
	// Rooms is the folder below which checks work, by an absolute path. Nil allows no checks. The caller closes it.
	Rooms *os.Root
	// CheckCapabilities are given to checks that run as their own user.
	CheckCapabilities []uintptr
	// AgentFolders are the folders of the agent, in which a check finds no links into /proc.
	AgentFolders []string
}

// Settings are the settings that all commands of the sandbox share.
type Settings struct {
	// Env is added to HOME and LANG; it sets PATH.
	Env map[string]string
	// Workdir is where relative folders start.
	Workdir string
	// User is the user of commands that name none.
	User string
}

type settings struct {
	Settings
	user account.Account
	env  []string // of a command of that user that sets nothing
	path string
}

// Runner runs commands and keeps their results. Its methods are safe for concurrent use.
type Runner struct {
	table    *process.Table
	grace    time.Duration
	oomCount func() int64
	budget   *spool.Budget
	null     *os.File

	rooms     *os.Root
	checkCaps []uintptr
	folders   []string
	checking  chan struct{} // holds a token while a check runs

	settings atomic.Pointer[settings]

	mu    sync.Mutex
	byKey map[string]*Command // nil: cancelled before it began
	order []*Command          // ended commands with a key, oldest first
}

// NewRunner makes a runner; Configure must be called before the first command.
func NewRunner(cfg Config) (*Runner, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the null device: %w", err)
	}
	r := &Runner{
		table: cfg.Table, grace: cfg.Grace, oomCount: cfg.OOMCount, null: null, byKey: map[string]*Command{},
		rooms: cfg.Rooms, checkCaps: cfg.CheckCapabilities, folders: cfg.AgentFolders, checking: make(chan struct{}, 1),
	}
	if r.grace == 0 {
		r.grace = DefaultGrace
	}
	r.budget = spool.NewBudget(cmp.Or(cfg.KeptBytes, bound.GuestOutputBytes), r.dropOldest)
	if r.oomCount == nil {
		r.oomCount = func() int64 { return 0 }
	}
	return r, nil
}

// Configure sets the settings of all later commands. It fails if the sandbox has no such user.
func (r *Runner) Configure(s Settings) error {
	user, err := account.Lookup(s.User)
	if err != nil {
		return err
	}
	env, path := environment(s.Env, user, nil)
	r.settings.Store(&settings{Settings: s, user: user, env: env, path: path})
	return nil
}

// Place gives the user and folder of file operations for the user of that name; the empty name is that of commands.
func (r *Runner) Place(user string) (workdir string, who account.Account, err error) {
	s := r.settings.Load()
	if s == nil {
		return "", account.Account{}, errNotConfigured()
	}
	if user == "" || user == s.User {
		return s.Workdir, s.user, nil
	}
	who, err = account.Lookup(user)
	return s.Workdir, who, err
}

// Run starts the command that spec describes, or returns the one that its key identifies. With a key the command
// continues when ctx ends; without one it is killed. A nil spec only looks up the key. replayed reports that the key
// was known.
//
// Errors: EFFECT_UNKNOWN for a nil spec and an unknown key, REQUEST_ID_REUSED for a key of another command,
// EFFECT_CANCELLED for a key that was killed before it was known. Errors of the command itself are its Err.
func (r *Runner) Run(ctx context.Context, key string, hash []byte, spec *sandboxv1.ExecSpec) (c *Command, replayed bool, err error) {
	return r.Follow(ctx, key, hash, spec, func(*Command) {})
}

// Follow is Run for a caller that follows the output: begin is called before the command prints anything, unless the
// command began before.
func (r *Runner) Follow(ctx context.Context, key string, hash []byte, spec *sandboxv1.ExecSpec, begin func(*Command)) (c *Command, replayed bool, err error) {
	if r.settings.Load() == nil {
		return nil, false, errNotConfigured()
	}
	if spec != nil {
		if err := check(spec); err != nil {
			return nil, false, err
		}
		if len(hash) == 0 {
			hash = Hash(spec)
		}
	}
	if key == "" {
		if spec == nil {
			return nil, false, rpcerr.InvalidField("spec", "a command is needed where there is no key to attach to")
		}
		c := r.create(key, hash, spec)
		begin(c)
		r.start(c, spec)
		stop := context.AfterFunc(ctx, func() { c.kill(cancelled) })
		go func() { <-c.done; stop() }()
		return c, false, nil
	}
	c, fresh, err := r.claim(key, hash, spec)
	if err != nil {
		return nil, true, err
	}
	begin(c)
	if !fresh {
		return c, true, nil
	}
	r.start(c, spec)
	go r.keep(c)
	return c, false, nil
}

func (r *Runner) create(key string, hash []byte, spec *sandboxv1.ExecSpec) *Command {
	limit := int64(DefaultOutput)
	if spec.MaxOutputBytes != nil {
		limit = min(spec.GetMaxOutputBytes(), MaxOutput)
	}
	return &Command{
		key: key, hash: hash, grace: r.grace, oomCount: r.oomCount, began: time.Now(), begun: make(chan struct{}), done: make(chan struct{}),
		stdout: spool.New(limit, r.budget), stderr: spool.New(limit, r.budget), input: &input{},
	}
}

// Forget drops the output of a command without a key, whose caller has seen what it wants. Of others it does nothing.
func (r *Runner) Forget(c *Command) {
	if c.key == "" {
		c.drop()
	}
}

// Close frees what the runner holds; no command may run any more.
func (r *Runner) Close() { r.null.Close() }

// Hash is the content of a command: two requests with the same hash ask for the same.
func Hash(spec *sandboxv1.ExecSpec) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return nil // cannot be: the message came over the wire
	}
	sum := sha256.Sum256(data)
	return sum[:]
}

// check refuses what no sandbox can do.
func check(spec *sandboxv1.ExecSpec) error {
	switch {
	case len(spec.GetArgv()) == 0 || spec.GetArgv()[0] == "":
		return rpcerr.InvalidField("spec.argv", "name a program")
	case spec.GetTimeout() != nil && spec.GetTimeout().AsDuration() <= 0:
		return rpcerr.InvalidField("spec.timeout", "must be above zero")
	case spec.MaxOutputBytes != nil && spec.GetMaxOutputBytes() < 0:
		return rpcerr.InvalidField("spec.max_output_bytes", "must not be below zero")
	}
	return nil
}

func errNotConfigured() error { return rpcerr.Internal("the guest was not configured by its host") }
