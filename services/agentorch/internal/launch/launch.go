// Package launch makes runs: it checks a specification, resolves every name in it, pins what decides the run's course, and creates the journal.
//
// Checking and creating are two steps, since a request may ask for the first alone:
//
//	plan, err := launcher.Check(ctx, project, spec)    names resolved, prompts written out, tools pinned
//	head, created, err := launcher.Start(ctx, plan, …) one journal
package launch

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

// Deps is what the launcher works with.
type Deps struct {
	Store     journal.Store
	Engine    *turn.Engine
	Models    modelv1.ModelServiceClient
	Tools     toolv1.ToolServiceClient
	Sandboxes sandboxv1.SandboxServiceClient
	Agents    *agent.Registry
	Scorers   *score.Registry
	// Workers knows what workers offer; nil where there are none.
	Workers Workers
	Logger  *slog.Logger
}

// Workers knows what workers offer beside tools. [workers.Workers] implements it.
type Workers interface {
	// Pin returns what is to be kept of an offer, or why it cannot be had.
	Pin(project, kind, name, params string) (*agentv1.WorkerRef, error)
}

// Launcher makes runs. Its methods may be called concurrently.
type Launcher struct{ deps Deps }

// New makes a launcher.
func New(deps Deps) *Launcher { return &Launcher{deps: deps} }

// Plan is a checked specification: what a run pins. It does not change.
type Plan struct {
	// Warnings say what would not be done as the specification asks for.
	Warnings []*agentv1.EvalWarning

	project string
	spec    *agentv1.RunSpec
	tools   []*toolv1.ToolDefinition
	// asks are the model calls that the steps may make, by step.
	asks [][]agent.Generate
	// closed is set where a step does not tell which calls it may make.
	closed bool
}

// Project returns the project's id.
func (p *Plan) Project() string { return p.project }

// Spec returns the resolved specification. It must not be changed.
func (p *Plan) Spec() *agentv1.RunSpec { return p.spec }

// Request identifies the request that makes a run.
type Request struct {
	// ID is unique in the project; empty for none.
	ID string
	// Digest is a hash of the request's content; empty where the id alone says what is asked for.
	Digest []byte
}

// Start creates the run of a plan and begins to drive it. Where the request made a run before, that one is returned and created is false; it fails with
// [journal.ErrReused] where it did with other content.
func (l *Launcher) Start(ctx context.Context, p *Plan, r Request, principal string) (head journal.Head, created bool, err error) {
	select {
	case <-l.deps.Engine.Ready():
	case <-ctx.Done():
		return journal.Head{}, false, ctx.Err()
	}
	now := time.Now()
	id := newID(now)
	name := resource.Format(p.project, "runs", id)
	spec := proto.CloneOf(p.spec)
	for i, m := range spec.GetInput() {
		if m.GetId() == "" {
			m.Id = fmt.Sprintf("%s.in.%d", id, i+1)
		}
		if m.GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_UNSPECIFIED {
			m.Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		}
	}
	bare, content := run.Split(spec)
	event := &agentv1.Event{
		Journal: name, Seq: 1, Epoch: 1, Time: timestamppb.New(now), Actor: principal, Id: "1", Critical: true,
		Kind: &agentv1.Event_RunCreated{RunCreated: &agentv1.RunCreated{
			Spec: bare, Tools: p.tools, FoldVersion: run.FoldVersion, Content: content, Warnings: p.Warnings,
		}},
	}
	state, err := run.Fold(name, l.deps.Agents, one(event))
	if err != nil {
		return journal.Head{}, false, err
	}
	row, err := state.Row()
	if err != nil {
		return journal.Head{}, false, err
	}
	c := journal.Creation{Name: name, Owner: l.deps.Engine.Replica(), Entries: []journal.Entry{{Event: event}}, Row: row}
	if r.ID != "" {
		c.Request, c.Digest = p.project+"/CreateRun/"+r.ID, r.Digest
	}
	head, created, err = l.deps.Store.Create(ctx, c)
	if err == nil && created {
		if row.Parent == "" {
			l.deps.Logger.InfoContext(ctx, "a run begins", "run", name, "model", spec.GetModel().GetModel())
		}
		l.deps.Engine.Drive(head, row.Parent)
	}
	return head, created, err
}

// Send puts a command into a run's inbox and has its owner look at it. It returns when the command is durable, not when it was carried out.
func (l *Launcher) Send(ctx context.Context, run string, c turn.Command) error {
	packed, err := c.Pack()
	if err != nil {
		return err
	}
	if err := l.deps.Store.Post(ctx, run, packed); err != nil {
		return err
	}
	l.deps.Engine.Wake(run)
	return nil
}

// Waiting returns what a run that is driven here waits for, where its journal does not tell; nil for nothing.
func (l *Launcher) Waiting(run string) *agentv1.RunWait { return l.deps.Engine.Waiting(run) }

// cancelsAtOnce bounds the cancels that are under way; the store makes those that meet durable together.
const cancelsAtOnce = 256

// Cancel sends a cancel to many runs, side by side, and returns when it is durable for all. It goes on after a failure and returns one of them. A run that got a cancel with this id
// before is left alone, whatever the reason was then.
func (l *Launcher) Cancel(ctx context.Context, runs []string, commandID, principal, reason string) error {
	var sending errgroup.Group
	sending.SetLimit(cancelsAtOnce)
	for _, name := range runs {
		sending.Go(func() error {
			err := l.Send(ctx, name, turn.Command{ID: "cancel/" + commandID, Principal: principal, Request: &agentv1.CancelRunRequest{Name: name, Reason: reason}})
			if errors.Is(err, journal.ErrReused) {
				return nil
			}
			return err
		})
	}
	return sending.Wait()
}

func one(e *agentv1.Event) iter.Seq2[*agentv1.Event, error] {
	return func(yield func(*agentv1.Event, error) bool) { yield(e, nil) }
}

// idAlphabet is Crockford's base 32 in lower case: no letters that look like digits.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// newID makes the id of a run: 18 characters, the first ten of which are the time in milliseconds, so that ids sort by it. Effect keys begin with it, so it is short.
func newID(now time.Time) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	var id strings.Builder
	write := func(bits uint64, digits int) {
		for shift := 5 * (digits - 1); shift >= 0; shift -= 5 {
			id.WriteByte(idAlphabet[bits>>shift&31])
		}
	}
	write(uint64(now.UnixMilli()), 10)
	write(binary.BigEndian.Uint64(random[:]), 8)
	return id.String()
}
