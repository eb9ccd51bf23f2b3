package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Attempt makes one attempt: the innermost function. An attempt that exceeds its time limit, or whose stream falls
// silent, is cancelled and counts as transient. limit is the time limit if the configuration has none; zero is none. A
// batched attempt has neither bound: its transport bounds the wait for its answers, which is no work.
// answers bounds what is read of answers.
func Attempt(limit time.Duration, answers *Answers) Func {
	return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
		start := time.Now()
		o.Attempts++
		o.FirstPiece = 0
		defer func() { o.Working += time.Since(start) }()
		if c.Batched != nil {
			return c.ride(ctx, o, answers.each)
		}

		bound, idle := limit, time.Duration(0)
		if c.Config.AttemptTimeout != nil {
			bound = seconds.Duration(c.Config.GetAttemptTimeout())
		}
		if c.Config.StreamIdleTimeout != nil && c.Model.Capabilities().Features.GetStreaming() {
			idle = seconds.Duration(c.Config.GetStreamIdleTimeout())
		}
		var cut context.CancelCauseFunc
		if bound > 0 || idle > 0 {
			ctx, cut = context.WithCancelCause(ctx)
			defer cut(nil)
		}
		if bound > 0 {
			timer := cutAfter(bound, cut, "the attempt took longer than %s")
			defer timer.Stop()
		}
		r, restore := c.Model.WithToolNames(c.request(ctx, o))
		h := &answer{of: answers}
		defer h.end()
		r.MaxAnswerBytes, r.Hold = answers.each, h.hold
		brokenOff := false
		r.Unfinished = func(said *modelv1.ModelUsage, pieces int64) {
			brokenOff = true
			input := c.Tokens() + tokens.RoughTools(c.Tools)
			o.unfinished = append(o.unfinished, Unfinished(said, input, pieces))
		}
		if idle > 0 {
			timer := cutAfter(idle, cut, "nothing came for %s")
			defer timer.Stop()
			r.Progress = func() { timer.Reset(idle) }
			pause(r, timer, idle)
		}
		response, err := c.send(ctx, r)
		if err != nil {
			return nil, c.explain(ctx, err)
		}
		restore(response)
		response.BrokenOff, o.BrokenOff = brokenOff, brokenOff
		if response.Output.Time == nil {
			response.Output.Time = provider.Clock(start)
		}
		return response, nil
	}
}

// ride makes a batched attempt.
func (c *Call) ride(ctx context.Context, o *Outcome, maxAnswerBytes int64) (*provider.Response, error) {
	r, restore := c.Model.WithToolNames(c.request(ctx, o))
	r.Stream, r.Carrier, r.MaxAnswerBytes = nil, c.Batched, maxAnswerBytes
	before := c.Batched.Waited
	defer func() {
		waited := c.Batched.Waited - before
		o.Working -= waited
		o.Queued += waited
	}()
	response, err := c.Model.Generate(ctx, r)
	if err != nil {
		return nil, err
	}
	restore(response)
	response.Output.Time = nil // How long the model took is not known.
	return response, nil
}

// send makes the attempt at the provider.
func (c *Call) send(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if c.Compact == nil {
		return c.Model.Generate(ctx, r)
	}
	compactor, ok := c.Model.Provider.(provider.Compactor)
	if !ok {
		return nil, provider.NoCompaction(c.Model.FullName(), "has no compaction of its own", nil)
	}
	return compactor.Compact(ctx, r, *c.Compact)
}

// pause keeps a timer of silence still while an attempt does not read: it waits for its watcher, or for room.
func pause(r *provider.Request, timer *time.Timer, idle time.Duration) {
	if pass := r.Stream; pass != nil {
		r.Stream = func(d *modelv1.GenerateDelta) {
			timer.Stop()
			defer timer.Reset(idle)
			pass(d)
		}
	}
	hold := r.Hold
	r.Hold = func(ctx context.Context, n int) error {
		timer.Stop()
		defer timer.Reset(idle)
		return hold(ctx, n)
	}
}

// cutAfter ends an attempt after a while; why is the reason, with the while in it.
func cutAfter(d time.Duration, cut context.CancelCauseFunc, why string) *time.Timer {
	return time.AfterFunc(d, func() { cut(fmt.Errorf("%w: "+why, provider.ErrCut, d)) })
}

// explain makes a transient failure of an attempt that the gateway cut.
func (c *Call) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, provider.ErrCut) {
		return &provider.Error{Provider: c.Model.Kind.Name, Class: provider.Transient, Call: provider.ExchangeOf(err), Cause: cause}
	}
	return err
}

// number is that of the attempt within its call, those at other models included.
func (o *Outcome) number() int { return o.Earlier + o.Attempts }

// request returns the provider's request, and notifies the sink that an attempt begins.
func (c *Call) request(ctx context.Context, o *Outcome) *provider.Request {
	r := &provider.Request{
		Messages:   c.Messages,
		Tools:      c.Tools,
		ToolChoice: c.Choice,
		Config:     c.Config,
		Attempt:    o.number(),
		Origin:     c.Origin,
		Client:     c.Client,
		Record:     c.Record,
		Tokens:     c.Tokens,
		OnHeaders:  o.OnHeaders,

		InputWindow: c.InputWindow,
	}
	if c.Sink == nil {
		return r
	}
	if o.streamed {
		c.Sink.Restart(ctx, o.number(), c.Model.FullName())
	} else {
		c.Sink.Started(ctx, o.number(), c.Model.FullName())
	}
	o.streamed = false
	began := time.Now()
	r.Stream = func(d *modelv1.GenerateDelta) {
		if !o.streamed {
			o.streamed, o.FirstPiece = true, time.Since(began)
		}
		c.Sink.Delta(ctx, d)
	}
	return r
}
