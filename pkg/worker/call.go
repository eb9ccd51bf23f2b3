package worker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/effect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/rules"
)

var (
	// ErrUnknown is the outcome of a call whose worker was lost and did not reconnect with it, and that must not be
	// dispatched again.
	ErrUnknown = errors.New("the worker was lost during the call, so it is not known whether the call took effect")
	// ErrTimeout is the error for a worker that did not answer within the timeout of the call.
	ErrTimeout = errors.New("the worker did not answer in time")
)

// Call is a request to a worker.
type Call struct {
	// Key is the effect's key. Without an id the call gets a unique id, and its result is accepted at once.
	Key effect.Key
	// Kind and Name identify the offer that serves the call.
	Kind, Name string
	// PayloadJSON is the JSON form of the kind's payload.
	PayloadJSON string
	// OnUnknown is the rule for a lost worker; unspecified is FAIL. ASK is as FAIL here: asking is up to the caller.
	OnUnknown toolv1.OnUnknown
	// Timeout bounds the time at the worker; zero is no bound.
	Timeout time.Duration
	// Progress is called with each line of progress while the call is in flight. It must not block. Nil ignores
	// progress.
	Progress func(message string)
	// Read reads the payload of a result; its error rejects the payload. Nil accepts every payload.
	Read func(payloadJSON string) error
	// Lost means that a process which has ended may have dispatched the call to a worker.
	Lost bool
}

// Answer is how a worker ended a call.
type Answer struct {
	// PayloadJSON is the worker's payload, accepted by Call.Read.
	PayloadJSON string
	// Error is set where the worker failed instead.
	Error *workerv1.CallError
	// Queued is how long the call waited for a free worker.
	Queued time.Duration

	worker string
}

// UnusableError is the error for a worker's result that Call.Read rejects.
type UnusableError struct {
	// Worker is the name of the sender.
	Worker string
	// Err is the reason.
	Err error
}

// Error implements error.
func (e *UnusableError) Error() string {
	return fmt.Sprintf("%s answered what is of no use: %v", e.Worker, e.Err)
}

// Unwrap returns why.
func (e *UnusableError) Unwrap() error { return e.Err }

// Unmarshal reads the JSON form of a message as a worker sent it, and holds it against the rules of its schema. Members
// that the message does not have are errors.
func Unmarshal(payloadJSON string, m proto.Message) error {
	err := protojson.Unmarshal([]byte(payloadJSON), m)
	if err == nil {
		return broken(rules.Check(m))
	}
	// The parser varies its blanks so that callers do not depend on its messages. Journals store them here.
	words := strings.Join(strings.Fields(err.Error()), " ")
	return fmt.Errorf("it is not the JSON of %s: %s", m.ProtoReflect().Descriptor().Name(), strings.TrimPrefix(words, "proto: "))
}

// broken returns an error about fields with their JSON names, as a worker writes them.
func broken(err error) error {
	fault, ok := rpcerr.As(err)
	if !ok || len(fault.Fields) == 0 {
		return err
	}
	said := make([]string, len(fault.Fields))
	for i, f := range fault.Fields {
		said[i] = strings.TrimPrefix(rpcerr.JSONPath(f.Path)+": "+f.Description, ": ")
	}
	return errors.New(strings.Join(said, "; "))
}

// call is a call that has no answer yet. The host's lock guards it.
type call struct {
	Call
	pool      *pool
	asked     time.Time
	waiting   *list.Element // in the pool's queue; nil elsewhere
	holders   map[*session]struct{}
	everGiven bool
	once      bool // its result is not stored
	queued    time.Duration

	until   time.Time // when late ends the call; zero for never
	late    func() error
	changed chan struct{} // until or the end has changed
	over    bool
	answer  Answer
	err     error
}

// bound sets when a call is over by itself, and how; zero is never.
func (c *call) bound(in time.Duration, late func() error) {
	c.until, c.late = time.Time{}, late
	if in > 0 {
		c.until = time.Now().Add(in)
	}
	c.wake()
}

// settle ends a call, once.
func (c *call) settle(answer Answer, err error) {
	if c.over {
		return
	}
	c.over, c.answer, c.err = true, answer, err
	c.wake()
}

func (c *call) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Do has a worker carry a call out and returns its answer. The caller makes the answer durable and then calls Accept.
//
// It fails with
//   - [ErrUnknown] or [ErrTimeout];
//   - ctx's error, and then the call is cancelled at the worker, unless the cause is [effect.ErrDraining];
//   - [effect.ErrDraining] when the host closes while a worker has the call;
//   - an error marked by [effect.NotStarted] when no worker has it: none is connected, or too many calls wait
//     (WORKER_UNAVAILABLE), or the host is closed;
//   - WORKER_NOT_CONNECTED, which is final, once none was connected for longer than Config.Absence;
//   - an [*UnusableError] where Call.Read does. The operator reads the answer in the log, and the worker why.
func (h *Host) Do(ctx context.Context, request Call) (Answer, error) {
	c := &call{Call: request, asked: time.Now(), holders: map[*session]struct{}{}, changed: make(chan struct{}, 1)}
	if c.Key.ID == "" {
		c.Key.ID, c.once = "once-"+resource.NewID(), true
	}
	h.mu.Lock()
	err := h.admit(c)
	h.mu.Unlock()
	if err != nil {
		return Answer{}, err
	}
	answer, err := h.await(ctx, c)
	if err == nil && answer.Error == nil && c.Read != nil {
		if unfit := c.Read(answer.PayloadJSON); unfit != nil {
			err = h.refuse(c, answer, unfit)
		}
	}
	if c.once {
		h.Accept(c.Key)
	}
	return answer, err
}

// maxTold bounds, in bytes, the quoted part of an unusable answer.
const maxTold = 500

// refuse notes why a result is of no use, for the worker and for the operator.
func (h *Host) refuse(c *call, answer Answer, why error) error {
	h.deps.Logger.Warn("a worker's answer is of no use", "worker", answer.worker, "project", c.Key.Project, "kind", c.Kind, "name", c.Name, "key", c.Key.ID,
		"error", why, "answer", headtail.Cut(answer.PayloadJSON, maxTold))
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if _, delivered := s.delivered[c.Key.ID]; delivered && s.project == c.Key.Project {
			s.delivered[c.Key.ID] = why.Error()
		}
	}
	return &UnusableError{Worker: answer.worker, Err: why}
}

// admit finds a place for a call: with a worker that has it already, or in the queue.
func (h *Host) admit(c *call) error {
	if h.closed {
		return effect.NotStarted(stopping())
	}
	if h.calls[c.Key] != nil {
		return rpcerr.Internal("the call %s is asked for twice at once", c.Key.ID)
	}
	c.pool = h.pool(Offered{c.Key.Project, c.Kind, c.Name})
	h.calls[c.Key] = c
	for s := range h.sessions {
		if held, ok := s.held[c.Key.ID]; ok && s.project == c.Key.Project {
			delete(s.held, c.Key.ID)
			c.everGiven = true
			if held == nil {
				h.give(c, s, false)
				continue
			}
			h.parked -= held.size()
			h.answered(c, s, held)
		}
	}
	switch {
	case c.over || len(c.holders) > 0:
	case c.Lost && c.OnUnknown != toolv1.OnUnknown_ON_UNKNOWN_RETRY:
		c.everGiven = true
		c.bound(h.cfg.Reconnect, unknown)
	default:
		h.enqueue(c, false)
	}
	return nil
}

func unknown() error { return ErrUnknown }

// await waits until a call has ended, is late, or is abandoned.
func (h *Host) await(ctx context.Context, c *call) (Answer, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		left := false
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
			left = true
		}
		h.mu.Lock()
		switch {
		case c.over:
		case left:
			c.settle(Answer{}, ctx.Err())
			if !errors.Is(context.Cause(ctx), effect.ErrDraining) {
				c.recall()
			}
		case !c.until.IsZero() && !time.Now().Before(c.until):
			c.settle(Answer{}, c.late())
			c.recall()
		case !c.until.IsZero():
			timer.Reset(time.Until(c.until))
		default:
			timer.Stop()
		}
		if c.over {
			h.drop(c)
			h.mu.Unlock()
			return c.answer, c.err
		}
		h.mu.Unlock()
	}
}

// recall cancels a call at the workers that have it.
func (c *call) recall() {
	for s := range c.holders {
		s.out.push(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Cancel{Cancel: &workerv1.CancelCall{Key: c.Key.ID}}})
	}
}

// drop forgets a call that is over, and gives its slots to others.
func (h *Host) drop(c *call) {
	delete(h.calls, c.Key)
	if !effect.IsNotStarted(c.err) {
		delete(h.losses, c.Key)
	}
	if c.waiting != nil {
		c.pool.waiting.Remove(c.waiting)
	}
	for s := range c.holders {
		delete(s.calls, c.Key.ID)
		h.fillSlots(s)
	}
}

// give assigns a call to a session; send also sends it to the worker.
func (h *Host) give(c *call, s *session, send bool) {
	if c.waiting != nil {
		c.pool.waiting.Remove(c.waiting)
		c.waiting = nil
	}
	if !c.everGiven {
		c.queued = time.Since(c.asked)
	}
	s.calls[c.Key.ID], c.holders[s], c.everGiven = c, struct{}{}, true
	c.bound(c.Timeout, func() error { return ErrTimeout })
	if !send {
		return
	}
	frame := &workerv1.Call{Key: c.Key.ID, Kind: c.Kind, Name: c.Name, PayloadJson: c.PayloadJSON}
	if c.Timeout > 0 {
		frame.Timeout = durationpb.New(c.Timeout)
	}
	s.out.push(&workerv1.ConnectResponse{Frame: &workerv1.ConnectResponse_Call{Call: frame}})
}

// answered ends a call with a worker's result. The result is acknowledged to the worker once it is durable.
func (h *Host) answered(c *call, s *session, result *result) {
	s.delivered[c.Key.ID] = ""
	delete(c.holders, s)
	c.recall()
	c.settle(Answer{PayloadJSON: result.payload, Error: result.err, Queued: c.queued, worker: s.name}, nil)
}

// maxProgress bounds a line of progress, in runes.
const maxProgress = 200

// progress forwards a worker's progress: one line, without terminal control sequences.
func (c *call) progress(message string) {
	if c.Progress == nil {
		return
	}
	message = message[:min(len(message), 8*maxProgress)] // More is not shown anyway.
	line := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, message)), " ")
	if runes := []rune(line); len(runes) > maxProgress {
		line = string(runes[:maxProgress]) + "…"
	}
	c.Progress(line)
}

// lost takes a call out of the hands of a session that has ended.
func (h *Host) lost(c *call, s *session) {
	delete(c.holders, s)
	if c.over || len(c.holders) > 0 {
		return
	}
	if c.OnUnknown != toolv1.OnUnknown_ON_UNKNOWN_RETRY {
		c.bound(h.cfg.Reconnect, unknown)
		return
	}
	if h.losses[c.Key]++; h.losses[c.Key] >= maxLosses {
		c.settle(Answer{}, ErrUnknown)
		return
	}
	h.enqueue(c, true)
}
