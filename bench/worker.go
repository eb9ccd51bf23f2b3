package main

import (
	"context"
	"errors"
	"io"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
)

func workerBenchmark() benchmark {
	return benchmark{
		name:  "worker",
		title: "A call of a worker's tool",
		how: "One caller has tools executed, one call after another, by a single binary in a process of its own, through its one address. The tool of a worker goes out again by that address to " +
			"this process, which answers at once, and back; the built-in tool, `think`, is answered in the server. Neither has a key, so that no disk is in it.",
		run: runWorker,
	}
}

// roundTrip is the goal of one call that a worker answers, in microseconds.
const roundTrip = 500

func runWorker(ctx context.Context, e *env) (figures []report.Figure, err error) {
	server, err := e.serve(ctx, "worker", "", settings{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	conn, err := e.dial(server.Address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	leave, err := echo(ctx, workerv1.NewWorkerServiceClient(conn))
	if err != nil {
		return nil, err
	}
	defer leave()

	tools := toolv1.NewToolServiceClient(conn)
	table, err := e.measure(ctx, 25, load.Latency(execution(tools, "echo", `{}`)), load.Latency(execution(tools, "think", `{"thought":"x"}`)))
	if err != nil {
		return nil, err
	}
	return []report.Figure{{
		Name: "call of a worker's tool", Baseline: "call of a built-in tool", Measured: table.Median(0), BaselineMeasured: table.Median(1), Unit: "µs", Ratio: table.Ratio(0, 1, 1),
		Goals: []report.Goal{report.Within(table.Median(0), roundTrip, "µs")},
		Means: "What a tool or a scorer in any language costs beside its own work. The difference to the built-in tool is the way to the worker and back.",
	}}, nil
}

// echo connects a worker that answers calls of the tool echo at once, until the returned function is called.
func echo(ctx context.Context, service workerv1.WorkerServiceClient) (leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := service.Connect(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	err = stream.Send(&workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Register{Register: &workerv1.Register{
		Offers: []*workerv1.Offer{{Kind: "tool", Name: "echo", Description: "Answers."}},
	}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for frame, err := stream.Recv(); err == nil; frame, err = stream.Recv() {
			answer := &workerv1.ConnectRequest{Frame: &workerv1.ConnectRequest_Pong{Pong: &workerv1.Pong{}}}
			if call := frame.GetCall(); call != nil {
				answer.Frame = &workerv1.ConnectRequest_Result{Result: &workerv1.CallResult{Key: call.GetKey(), Outcome: &workerv1.CallResult_PayloadJson{PayloadJson: `{"text":"x"}`}}}
			}
			if (frame.GetCall() != nil || frame.GetPing() != nil) && stream.Send(answer) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// execution has one call of a tool executed.
func execution(tools toolv1.ToolServiceClient, tool, arguments string) load.Call {
	return func(ctx context.Context, _, _ int) error {
		stream, err := tools.ExecuteTools(ctx, &toolv1.ExecuteToolsRequest{
			Parent: "projects/default", Tools: []*toolv1.ToolRef{{Name: tool}}, Calls: []*toolv1.ToolCall{{Id: "1", Function: tool, ArgumentsJson: arguments}},
		})
		if err != nil {
			return err
		}
		for {
			event, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if result := event.GetResult(); result.GetError() != nil || result.GetFailure() != nil {
				return errors.New("the tool failed: " + result.GetError().GetMessage() + result.GetFailure().GetMessage())
			}
		}
	}
}
