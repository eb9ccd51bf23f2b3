package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/effect"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

type answerStream = grpc.ServerStreamingServer[modelv1.StreamGenerateResponse]

// Generate implements ModelService.
func (s *Server) Generate(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.GenerateResponse, error) {
	return s.Calls.Generate(ctx, r)
}

// StreamGenerate implements ModelService.
func (s *Server) StreamGenerate(r *modelv1.StreamGenerateRequest, out answerStream) error {
	if r.GetRequest().GetValidateOnly() {
		return rpcerr.InvalidField("request.validate_only", "is for Generate, which answers with a message; there is no stream of a check")
	}
	err := s.Calls.Stream(out.Context(), r.GetRequest(), out.Send)
	if rpcerr.Concerns("", err) {
		return rpcerr.In("request", err)
	}
	return err
}

// AttachGenerate implements ModelService.
func (s *Server) AttachGenerate(r *modelv1.AttachGenerateRequest, out answerStream) error {
	key, err := keyOf(r.GetParent(), r.GetRequestId())
	if err != nil {
		return err
	}
	return s.Calls.Attach(out.Context(), key, r.GetCursor(), out.Send)
}

// Compact implements ModelService.
func (s *Server) Compact(ctx context.Context, r *modelv1.CompactRequest) (*modelv1.CompactResponse, error) {
	return s.Calls.Compact(ctx, r)
}

// ExtendPrefix implements ModelService.
func (s *Server) ExtendPrefix(_ context.Context, r *modelv1.ExtendPrefixRequest) (*modelv1.ExtendPrefixResponse, error) {
	p, err := s.Calls.ExtendPrefix(r)
	if err != nil {
		return nil, err
	}
	return &modelv1.ExtendPrefixResponse{Prefix: p}, nil
}

// CancelGenerate implements ModelService.
func (s *Server) CancelGenerate(ctx context.Context, r *modelv1.CancelGenerateRequest) (*modelv1.CancelGenerateResponse, error) {
	key, err := keyOf(r.GetParent(), r.GetRequestId())
	if err != nil {
		return nil, err
	}
	ended, err := s.Effects.Cancel(ctx, key)
	if err == nil {
		err = s.Batches.Forget(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	return &modelv1.CancelGenerateResponse{AlreadyDone: ended}, nil
}

// ReleaseGenerate implements ModelService.
func (s *Server) ReleaseGenerate(ctx context.Context, r *modelv1.ReleaseGenerateRequest) (*modelv1.ReleaseGenerateResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	keys := make([]effect.Key, len(r.GetRequestIds()))
	for i, id := range r.GetRequestIds() {
		keys[i] = effect.Key{Project: project, ID: id}
	}
	if err := s.Effects.Release(ctx, keys...); err != nil {
		return nil, err
	}
	return &modelv1.ReleaseGenerateResponse{}, nil
}

// ReleaseRunGenerates implements ModelService.
func (s *Server) ReleaseRunGenerates(ctx context.Context, r *modelv1.ReleaseRunGeneratesRequest) (*modelv1.ReleaseRunGeneratesResponse, error) {
	project, runs, err := resource.Children(r.GetParent(), "runs", r.GetRuns())
	if err != nil {
		return nil, err
	}
	if err := s.Effects.ReleaseRuns(ctx, project, runs...); err != nil {
		return nil, err
	}
	if err := s.Batches.ForgetRuns(ctx, project, runs...); err != nil {
		return nil, err
	}
	return &modelv1.ReleaseRunGeneratesResponse{}, nil
}

func keyOf(parent, requestID string) (effect.Key, error) {
	project, err := resource.ParseProject("parent", parent)
	return effect.Key{Project: project, ID: requestID}, err
}

// WatchRetries implements ModelService.
func (s *Server) WatchRetries(r *modelv1.WatchRetriesRequest, out grpc.ServerStreamingServer[modelv1.WatchRetriesResponse]) error {
	meant, err := resource.Within("parent", r.GetParent())
	if err != nil {
		return err
	}
	return s.Calls.Retries().Follow(out.Context(), func(key effect.Key) bool { return meant(key.Project) }, func(news *lastvalue.Update[effect.Key, *effectv1.Note]) error {
		if news == nil {
			return out.Send(&modelv1.WatchRetriesResponse{})
		}
		return out.Send(&modelv1.WatchRetriesResponse{Parent: resource.Project(news.Key.Project), RequestId: news.Key.ID, Note: news.Value})
	})
}
