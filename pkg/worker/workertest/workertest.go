// Package workertest provides workers for tests: one that a test controls step by step, over any stream, and one that
// serves functions.
package workertest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Stream is the worker's end of a connection.
type Stream interface {
	Send(*workerv1.ConnectRequest) error
	Recv() (*workerv1.ConnectResponse, error)
}

// Worker is a worker that a test leads by the hand.
type Worker struct {
	t      testing.TB
	stream Stream
	close  func()
}

// Connect connects a worker to a host in this process, without gRPC in between. The test's end breaks the connection.
func Connect(t testing.TB, host workerv1.WorkerServiceServer) *Worker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipe{ctx: ctx, up: make(chan *workerv1.ConnectRequest), down: make(chan *workerv1.ConnectResponse), ended: make(chan struct{})}
	go func() {
		defer cancel() // as gRPC does when a handler returns
		p.err = host.Connect(server{pipe: p})
		close(p.ended)
	}()
	w := &Worker{t: t, stream: client{p}, close: sync.OnceFunc(func() { cancel(); waittest.For(t, p.ended, "the host to let go of the worker") })}
	t.Cleanup(w.close)
	return w
}

// Dial connects a worker over gRPC. The test's end breaks the connection.
func Dial(t testing.TB, service workerv1.WorkerServiceClient) *Worker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := service.Connect(ctx)
	require.NoError(t, err)
	w := &Worker{t: t, stream: stream, close: sync.OnceFunc(func() {
		cancel()
		waittest.Return(t, func() {
			for err == nil {
				_, err = stream.Recv()
			}
		}, "the end of the worker's connection")
	})}
	t.Cleanup(w.close)
	return w
}

// Break breaks the connection, as a worker does that is killed.
func (w *Worker) Break() { w.close() }

// Send sends a frame.
func (w *Worker) Send(frame *workerv1.ConnectRequest) {
	w.t.Helper()
	require.NoError(w.t, w.stream.Send(frame))
}

// Register registers and returns the answer.
func (w *Worker) Register(r *workerv1.Register) *workerv1.Registered {
	w.t.Helper()
	w.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: r}})
	registered := w.Next().GetRegistered()
	require.NotNil(w.t, registered, "the first answer is about the registration")
	return registered
}

// Next returns the next frame, and answers pings before it.
func (w *Worker) Next() *workerv1.ConnectResponse {
	w.t.Helper()
	for {
		frame, err := w.receive("a frame for the worker")
		require.NoError(w.t, err)
		if frame.GetPing() == nil {
			return frame
		}
		w.Send(Pong())
	}
}

// Call returns the next frame, which must be a call.
func (w *Worker) Call() *workerv1.Call {
	w.t.Helper()
	frame := w.Next()
	require.NotNil(w.t, frame.GetCall(), "want a call: %v", frame)
	return frame.GetCall()
}

// Ended reads until the connection ends, and returns why; nil when it ended well.
func (w *Worker) Ended() error {
	w.t.Helper()
	for {
		if _, err := w.receive("the end of the worker's connection"); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// receive waits for the next frame, and fails the test with the name of the missing frame if there is none.
func (w *Worker) receive(what string) (frame *workerv1.ConnectResponse, err error) {
	w.t.Helper()
	waittest.Return(w.t, func() { frame, err = w.stream.Recv() }, what)
	return frame, err
}

// Flood sends frames until the host accepts no more, and returns the number of accepted ones.
func (w *Worker) Flood(frame func(i int) *workerv1.ConnectRequest) int {
	for i := 0; ; i++ {
		if w.stream.Send(frame(i)) != nil {
			return i
		}
	}
}

// Pong is the answer to a ping.
func Pong() *workerv1.ConnectRequest {
	return &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Pong{Pong: &workerv1.Pong{}}}
}

// Result is the result of a call.
func Result(key, payload string) *workerv1.ConnectRequest {
	return &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Result{Result: &workerv1.CallResult{Key: key, Outcome: &workerv1.CallResult_PayloadJson{PayloadJson: payload}}}}
}

// Progress sends progress of a call.
func Progress(key, message string) *workerv1.ConnectRequest {
	return &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Progress{Progress: &workerv1.CallProgress{Key: key, Message: message}}}
}

// Failure is the result of a call that failed.
func Failure(key string, err *workerv1.CallError) *workerv1.ConnectRequest {
	return &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Result{Result: &workerv1.CallResult{Key: key, Outcome: &workerv1.CallResult_Error{Error: err}}}}
}

// Serve answers calls until the connection ends. It is called on a goroutine of its own.
func (w *Worker) Serve(answer func(*workerv1.Call) *workerv1.ConnectRequest) {
	for {
		frame, err := w.stream.Recv()
		if err != nil {
			return
		}
		var reply *workerv1.ConnectRequest
		switch {
		case frame.GetCall() != nil:
			reply = answer(frame.GetCall())
		case frame.GetPing() != nil:
			reply = Pong()
		}
		if reply != nil && w.stream.Send(reply) != nil {
			return
		}
	}
}

// pipe is a stream within the process.
type pipe struct {
	ctx   context.Context //nolint:containedctx // a stream has one
	up    chan *workerv1.ConnectRequest
	down  chan *workerv1.ConnectResponse
	ended chan struct{}
	err   error // once ended
}

type client struct{ *pipe }

func (c client) Send(frame *workerv1.ConnectRequest) error {
	select {
	case c.up <- frame:
		return nil
	case <-c.ctx.Done():
		return io.EOF
	}
}

func (c client) Recv() (*workerv1.ConnectResponse, error) {
	select {
	case frame := <-c.down:
		return frame, nil
	case <-c.ended:
		if c.err != nil {
			return nil, c.err
		}
		return nil, io.EOF
	}
}

// server is the host's end, with the part of gRPC's stream that a host uses.
type server struct {
	workerv1.WorkerService_ConnectServer
	pipe *pipe
}

func (s server) Context() context.Context { return s.pipe.ctx }

func (s server) SetHeader(metadata.MD) error { return nil }

func (s server) Send(frame *workerv1.ConnectResponse) error {
	select {
	case s.pipe.down <- frame:
		return nil
	case <-s.pipe.ctx.Done():
		return s.pipe.ctx.Err()
	}
}

func (s server) Recv() (*workerv1.ConnectRequest, error) {
	select {
	case frame := <-s.pipe.up:
		return frame, nil
	case <-s.pipe.ctx.Done():
		return nil, s.pipe.ctx.Err()
	}
}
