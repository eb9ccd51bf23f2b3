package server

import (
	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evalexport"
)

// chunkBytes is the size of a log's chunks. It is a multiple of three, so that chunks in base64, as REST encodes them,
// can be concatenated.
const chunkBytes = 3 << 18

// ExportEval streams an evaluation as a log file.
func (s *Evals) ExportEval(req *agentv1.ExportEvalRequest, stream agentv1.EvalService_ExportEvalServer) error {
	name, err := resource.Parse("name", req.GetName(), "evals")
	if err != nil {
		return err
	}
	log, err := s.deps.Exporter.Open(stream.Context(), name.Project, req.GetName(), evalexport.Format(enum.Word(req.GetFormat())), int(req.GetModel()))
	if err != nil {
		return err
	}
	w := &chunks{stream: stream, next: &agentv1.ExportEvalResponse{FileName: log.FileName, SamplesTotal: int32(log.Total)}}
	if err := log.Write(stream.Context(), w, func(done int) { w.next.SamplesDone = int32(done) }); err != nil {
		return err
	}
	return w.flush()
}

// chunks sends the written bytes in messages of one size. Send blocks, so the log is produced no faster than its client
// reads.
type chunks struct {
	stream grpc.ServerStreamingServer[agentv1.ExportEvalResponse]
	next   *agentv1.ExportEvalResponse
}

// Write implements io.Writer.
func (c *chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), chunkBytes-len(c.next.GetChunk()))
		c.next.Chunk = append(c.next.GetChunk(), rest[:n]...)
		rest = rest[n:]
		if len(c.next.GetChunk()) == chunkBytes {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (c *chunks) flush() error {
	if len(c.next.GetChunk()) == 0 {
		return nil
	}
	sent := c.next
	c.next = &agentv1.ExportEvalResponse{SamplesDone: sent.GetSamplesDone(), SamplesTotal: sent.GetSamplesTotal()}
	return c.stream.Send(sent)
}
