package server_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
)

const (
	invalid  = errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST
	cursor   = errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR
	notFound = errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND
)

// The reason of an error describes the fault of a request, with the field or the name that is meant.
func TestErrorsAndTheirDetails(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	done := r.done("a")
	changed := func(change func(*agentv1.EvalSpec)) *agentv1.EvalSpec {
		s := spec("a")
		change(s)
		return s
	}
	create := func(s *agentv1.EvalSpec) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.CreateEval(ctx, &agentv1.CreateEvalRequest{Parent: project, Spec: s})
			return err
		}
	}
	update := func(name string, s *agentv1.EvalSpec, paths ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.UpdateEval(ctx, &agentv1.UpdateEvalRequest{Eval: &agentv1.Eval{Name: name, Spec: s}, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
			return err
		}
	}
	none := project + "/evals/none"
	for name, tt := range map[string]struct {
		call   func(context.Context) error
		code   codes.Code
		reason errorsv1.ErrorReason
		field  string // of the violation
		says   string
	}{
		"create: no parent": {func(ctx context.Context) error {
			_, err := r.CreateEval(ctx, &agentv1.CreateEvalRequest{Spec: spec("a")})
			return err
		}, codes.InvalidArgument, invalid, "parent", ""},
		"create: no specification": {create(nil), codes.InvalidArgument, invalid, "spec", ""},
		"create: a strange parent": {func(ctx context.Context) error {
			_, err := r.CreateEval(ctx, &agentv1.CreateEvalRequest{Parent: "evals", Spec: spec("a")})
			return err
		}, codes.InvalidArgument, invalid, "parent", "projects/"},
		"create: no task":     {create(changed(func(s *agentv1.EvalSpec) { s.Task = "" })), codes.InvalidArgument, invalid, "spec.task", "is required"},
		"create: a long task": {create(changed(func(s *agentv1.EvalSpec) { s.Task = strings.Repeat("t", 1025) })), codes.InvalidArgument, invalid, "spec.task", "1024 bytes"},
		"create: no model":    {create(changed(func(s *agentv1.EvalSpec) { s.Models = nil })), codes.InvalidArgument, invalid, "spec.models", "mockllm/model"},
		"create: a credential": {create(changed(func(s *agentv1.EvalSpec) {
			s.Config = &modelv1.GenerateConfig{ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{"Authorization": "Bearer sk"}}}
		})), codes.InvalidArgument, invalid, `spec.config.extra_headers.values["Authorization"]`, "carries a credential"},
		"create: negative epochs": {create(changed(func(s *agentv1.EvalSpec) { s.Epochs = &agentv1.Epochs{Count: new(int32(-1))} })), codes.InvalidArgument, invalid, "spec.epochs.count", "at least once"},
		"create: no epochs":       {create(changed(func(s *agentv1.EvalSpec) { s.Epochs = &agentv1.Epochs{Count: new(int32(0))} })), codes.InvalidArgument, invalid, "spec.epochs.count", "not 0 times"},
		"create: many epochs":     {create(changed(func(s *agentv1.EvalSpec) { s.Epochs = &agentv1.Epochs{Count: new(int32(math.MaxInt32))} })), codes.InvalidArgument, invalid, "spec.epochs.count", "1000000"},
		"create: many models": {create(changed(func(s *agentv1.EvalSpec) {
			s.Models, s.Epochs = slices.Repeat(s.GetModels(), 11), &agentv1.Epochs{Count: new(int32(bound.EvalRuns / 10))}
		})), codes.InvalidArgument, invalid, "spec.epochs.count", "11 models are 1100000 runs"},
		"create: many runs": {create(changed(func(s *agentv1.EvalSpec) {
			s.Dataset, s.Epochs = spec("a", "b", "c").GetDataset(), &agentv1.Epochs{Count: new(int32(bound.EvalRuns / 2))}
		})), codes.InvalidArgument, invalid, "spec.epochs.count", "3 samples × 500000 epochs × 1 models are 1500000 runs"},
		"create: many retries": {create(changed(func(s *agentv1.EvalSpec) { s.RetryOnError = bound.EvalRetries + 1 })), codes.InvalidArgument, invalid, "spec.retry_on_error", "at most 1000"},
		"create: a part of an error": {
			create(changed(func(s *agentv1.EvalSpec) {
				s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Threshold{Threshold: 7.5}}
			})), codes.InvalidArgument, invalid, "spec.fail_on_error", "whole number",
		},
		"create: errors that are no number": {
			create(changed(func(s *agentv1.EvalSpec) {
				s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Threshold{Threshold: math.NaN()}}
			})), codes.InvalidArgument, invalid, "spec.fail_on_error", "whole number",
		},
		"create: no sample at work": {create(changed(func(s *agentv1.EvalSpec) { s.MaxSamples = new(int32(0)) })), codes.InvalidArgument, invalid, "spec.max_samples", "at least 1"},
		"create: unknown scorer":    {create(changed(func(s *agentv1.EvalSpec) { s.Scorers[0].Name = "mtch" })), codes.InvalidArgument, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND, "spec.scorers[0].name", "match"},
		"create: unknown model":     {create(changed(func(s *agentv1.EvalSpec) { s.Models[0].Model = "nosuch/model" })), codes.NotFound, notFound, "", "nosuch/model"},
		"get: no such": {func(ctx context.Context) error {
			_, err := r.GetEval(ctx, &agentv1.GetEvalRequest{Name: none})
			return err
		}, codes.NotFound, notFound, "", none},
		"get: no name": {func(ctx context.Context) error {
			_, err := r.GetEval(ctx, &agentv1.GetEvalRequest{Name: project + "/runs/r"})
			return err
		}, codes.InvalidArgument, invalid, "name", "evals"},
		"list: strange token": {func(ctx context.Context) error {
			_, err := r.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: project, PageToken: "x"})
			return err
		}, codes.InvalidArgument, cursor, "page_token", "begin again"},
		"list: negative page": {func(ctx context.Context) error {
			_, err := r.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: project, PageSize: -1})
			return err
		}, codes.InvalidArgument, invalid, "page_size", ""},
		"cancel: no such": {func(ctx context.Context) error {
			_, err := r.CancelEval(ctx, &agentv1.CancelEvalRequest{Name: none})
			return err
		}, codes.NotFound, notFound, "", none},
		"resume: no such": {func(ctx context.Context) error {
			_, err := r.ResumeEval(ctx, &agentv1.ResumeEvalRequest{Name: none})
			return err
		}, codes.NotFound, notFound, "", none},
		"watch: no such": {func(context.Context) error {
			_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: none}, nil)
			return err
		}, codes.NotFound, notFound, "", none},
		"watch: strange cursor": {func(context.Context) error {
			_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: done, Cursor: "x"}, nil)
			return err
		}, codes.InvalidArgument, cursor, "cursor", "begin again"},
		"samples: no such eval": {func(ctx context.Context) error {
			_, err := r.ListSamples(ctx, &agentv1.ListSamplesRequest{Parent: none})
			return err
		}, codes.NotFound, notFound, "", none},
		"sample: no such": {func(ctx context.Context) error {
			_, err := r.GetSample(ctx, &agentv1.GetSampleRequest{Name: done + "/samples/b-1"})
			return err
		}, codes.NotFound, notFound, "", done + "/samples/b-1"},
		"sample: no name": {func(ctx context.Context) error {
			_, err := r.GetSample(ctx, &agentv1.GetSampleRequest{Name: done})
			return err
		}, codes.InvalidArgument, invalid, "name", "samples"},
		"update: no path":        {update(done, &agentv1.EvalSpec{}), codes.InvalidArgument, invalid, "update_mask", "spec.tags"},
		"update: another path":   {update(done, spec(), "spec.task"), codes.InvalidArgument, invalid, "update_mask", "spec.task"},
		"update: no JSON":        {update(done, &agentv1.EvalSpec{MetadataJson: "{"}, "spec.metadata_json"), codes.InvalidArgument, invalid, "eval.spec.metadata_json", "JSON"},
		"update: none at work":   {update(done, &agentv1.EvalSpec{MaxSamples: new(int32(0))}, "spec.max_samples"), codes.InvalidArgument, invalid, "eval.spec.max_samples", "cancel"},
		"update: one that ended": {update(done, &agentv1.EvalSpec{Tags: []string{"t"}}, "spec.tags"), codes.FailedPrecondition, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED, "", done},
		"scorers: no project": {func(ctx context.Context) error {
			_, err := r.ListScorers(ctx, &agentv1.ListScorersRequest{Parent: "x"})
			return err
		}, codes.InvalidArgument, invalid, "parent", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.call(r.within())
			require.Error(t, err)
			assert.Equal(t, tt.code, rpcerr.Code(err), "%v", err)
			e, ok := rpcerr.As(err)
			require.True(t, ok, "%v", err)
			if tt.field != "" {
				require.NotEmpty(t, e.Fields, "%v", err)
				assert.Equal(t, tt.field, e.Fields[0].Path)
			}
			assert.Equal(t, tt.reason, rpcerr.Reason(err), "%v", err)
			assert.ErrorContains(t, err, tt.says)
		})
	}
	list, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	assert.Len(t, list.GetEvals(), 1, "what was refused was not made")
}

// One key is one evaluation; with other content it is an error that names the key.
func TestAKeyMakesOneEvaluation(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	ask := func(s *agentv1.EvalSpec, validateOnly bool) (*agentv1.Eval, error) {
		return r.CreateEval(r.within(), &agentv1.CreateEvalRequest{Parent: project, Spec: s, RequestId: "k", ValidateOnly: validateOnly})
	}
	wanted := spec("a")
	checked, err := ask(wanted, true)
	require.NoError(t, err)
	assert.Empty(t, checked.GetName(), "nothing is made")
	assert.EqualValues(t, 1, checked.GetProgress().GetTotal())

	made, err := ask(wanted, false)
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_RUNNING, made.GetState())
	again, err := ask(wanted, false)
	require.NoError(t, err)
	assert.Equal(t, made.GetName(), again.GetName())
	_, err = ask(spec("b"), false)
	assert.Equal(t, codes.AlreadyExists, rpcerr.Code(err))
	assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED, rpcerr.Reason(err))
	e, _ := rpcerr.As(err)
	assert.Equal(t, "k", e.Metadata["requestId"])

	other, err := r.CreateEval(r.within(), &agentv1.CreateEvalRequest{Parent: "projects/other", Spec: spec("b"), RequestId: "k"})
	require.NoError(t, err, "a key belongs to its project")
	assert.NotEqual(t, made.GetName(), other.GetName())
}

// Lists go page by page, newest first, by state, and a token belongs to its request.
func TestListsArePaged(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	first, second := r.done("a"), r.done("b")
	working := r.create(spec("never"))
	list := func(req *agentv1.ListEvalsRequest) (*agentv1.ListEvalsResponse, []string) {
		req.Parent = project
		page, err := r.ListEvals(r.within(), req)
		require.NoError(t, err)
		var names []string
		for _, e := range page.GetEvals() {
			names = append(names, e.GetName())
		}
		return page, names
	}
	page, names := list(&agentv1.ListEvalsRequest{PageSize: 2})
	assert.Equal(t, []string{working, second}, names)
	require.NotEmpty(t, page.GetNextPageToken())
	rest, names := list(&agentv1.ListEvalsRequest{PageSize: 2, PageToken: page.GetNextPageToken()})
	assert.Equal(t, []string{first}, names)
	assert.Empty(t, rest.GetNextPageToken())
	_, names = list(&agentv1.ListEvalsRequest{States: []agentv1.EvalState{agentv1.EvalState_EVAL_STATE_SUCCEEDED}})
	assert.Equal(t, []string{second, first}, names)
	_, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: "projects/other", PageToken: page.GetNextPageToken()})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "another list's token")
}

func TestSamplesArePagedAndFiltered(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	r.runs.will("bad", agentv1.RunState_RUN_STATE_FAILED)
	for _, id := range []string{"a", "b"} {
		r.runs.will(id, agentv1.RunState_RUN_STATE_SUCCEEDED)
	}
	s := spec("a", "bad", "b")
	s.Epochs = &agentv1.Epochs{Count: new(int32(2))}
	s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}} // Else the first may end it before the second begins.
	name := r.create(s)
	r.watch(&agentv1.WatchEvalRequest{Name: name})
	list := func(req *agentv1.ListSamplesRequest) (ids []string) {
		for {
			req.Parent = name
			page, err := r.ListSamples(r.within(), req)
			require.NoError(t, err)
			for _, sample := range page.GetSamples() {
				ids = append(ids, sample.GetId())
				one, err := r.GetSample(r.within(), &agentv1.GetSampleRequest{Name: sample.GetName()})
				require.NoError(t, err)
				assert.Equal(t, sample.GetRun(), one.GetRun())
			}
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				return ids
			}
			assert.Len(t, page.GetSamples(), int(req.GetPageSize()))
		}
	}
	assert.ElementsMatch(t, []string{"a", "bad", "b", "a", "bad", "b"}, list(&agentv1.ListSamplesRequest{PageSize: 4}))
	assert.Equal(t, []string{"bad", "bad"}, list(&agentv1.ListSamplesRequest{PageSize: 1, States: []agentv1.RunState{agentv1.RunState_RUN_STATE_FAILED}}))
}

// A page with much in it is shorter than was asked for: each can be read by a client that takes 4 MiB, and no list
// fails.
func TestPagesAreOfABoundedSize(t *testing.T) {
	t.Parallel()
	const most, samples, evals = 4 << 20, 100, 4
	r := serveEvals(t)
	r.runs.answer = strings.Repeat("a", 60<<10)
	s := spec()
	for i := range samples {
		id := strconv.Itoa(i)
		r.runs.will(id, agentv1.RunState_RUN_STATE_SUCCEEDED)
		s.Dataset.GetInline().Samples = append(s.Dataset.GetInline().Samples, spec(id).GetDataset().GetInline().GetSamples()...)
	}
	name := r.create(s)
	r.watch(&agentv1.WatchEvalRequest{Name: name})
	listed := 0
	for req := (&agentv1.ListSamplesRequest{Parent: name, PageSize: 1000, Content: true}); ; {
		page, err := r.ListSamples(r.within(), req)
		require.NoError(t, err)
		assert.LessOrEqual(t, proto.Size(page), most)
		listed += len(page.GetSamples())
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	assert.Equal(t, samples, listed)

	for range evals {
		large := spec("a")
		large.MetadataJson = `{"note": "` + strings.Repeat("n", 2<<20) + `"}`
		r.create(large)
	}
	listed = 0
	for req := (&agentv1.ListEvalsRequest{Parent: project, PageSize: 1000}); ; {
		page, err := r.ListEvals(r.within(), req)
		require.NoError(t, err)
		assert.LessOrEqual(t, proto.Size(page), most)
		listed += len(page.GetEvals())
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	assert.Equal(t, 1+evals, listed)
	assert.LessOrEqual(t, r.store.largest.Load(), int64(journal.PageBytes+3<<20), "no more is read than a page and its last")
}

// What pages of samples cost does not grow with the evaluation's journal.
func TestSamplesAreReadOnce(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	r.runs.will("b", agentv1.RunState_RUN_STATE_SUCCEEDED)
	name := r.create(spec("a", "b")) // a is active until it is cancelled
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name}, func(one *agentv1.WatchEvalResponse) bool { return one.GetEvent().GetSampleFinished() != nil })
	require.NoError(t, err)
	list := func() (states []agentv1.RunState) {
		page, err := r.ListSamples(r.within(), &agentv1.ListSamplesRequest{Parent: name})
		require.NoError(t, err)
		for _, s := range page.GetSamples() {
			states = append(states, s.GetState())
		}
		return states
	}
	assert.Equal(t, []agentv1.RunState{agentv1.RunState_RUN_STATE_RUNNING, agentv1.RunState_RUN_STATE_SUCCEEDED}, list())
	events, bodies := r.store.events.Load(), r.kept.count()
	list()
	_, err = r.GetSample(r.within(), &agentv1.GetSampleRequest{Name: name + "/samples/2.1"})
	require.NoError(t, err)
	assert.Equal(t, events, r.store.events.Load(), "nothing has happened since")
	assert.Equal(t, bodies, r.kept.count())

	_, err = r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, []agentv1.RunState{agentv1.RunState_RUN_STATE_CANCELLED, agentv1.RunState_RUN_STATE_SUCCEEDED}, list(), "what came since is seen")
	assert.Equal(t, bodies, r.kept.count())
}

// Every method returns the content of samples and of an evaluation only on request.
func TestAnswersAreWithoutContentUnlessItIsAskedFor(t *testing.T) {
	t.Parallel()
	const secret = "canary"
	r := serveEvals(t)
	r.runs.answer = secret
	r.runs.will("a", agentv1.RunState_RUN_STATE_SUCCEEDED)
	s := spec("a")
	s.MetadataJson, s.Config = `{"k": "`+secret+`"}`, &modelv1.GenerateConfig{SystemMessage: new(secret), ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{"X-Key": secret}}}
	name := r.create(s)
	r.watch(&agentv1.WatchEvalRequest{Name: name})
	sample := name + "/samples/1.1"
	for _, content := range []bool{false, true} {
		eval, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name, Content: content})
		require.NoError(t, err)
		list, err := r.ListSamples(r.within(), &agentv1.ListSamplesRequest{Parent: name, Content: content})
		require.NoError(t, err)
		one, err := r.GetSample(r.within(), &agentv1.GetSampleRequest{Name: sample, Content: content})
		require.NoError(t, err)
		events, progress := &agentv1.ListRunEventsResponse{}, &agentv1.ListEvalsResponse{}
		for _, w := range r.watch(&agentv1.WatchEvalRequest{Name: name, Progress: true, Content: content}) {
			events.Events = append(events.Events, w.GetEvent())
			progress.Evals = append(progress.Evals, w.GetProgress())
		}
		for _, answer := range []proto.Message{eval, list, one, events, progress} {
			text := protojson.Format(answer)
			assert.Equal(t, content, strings.Contains(text, secret), "%T: %s", answer, text)
		}
		assert.Equal(t, "C", one.GetScores()[0].GetScore().GetValue().GetText(), "a grade is no content")
	}
	evals, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	assert.NotContains(t, protojson.Format(evals), secret)
	waited, err := r.WaitEval(r.within(), &agentv1.WaitEvalRequest{Name: name})
	require.NoError(t, err)
	assert.NotContains(t, protojson.Format(waited), secret)
	resumed, err := r.ResumeEval(r.within(), &agentv1.ResumeEvalRequest{Name: name})
	if err == nil {
		assert.NotContains(t, protojson.Format(resumed), secret)
	}
}

// A mask names the fields to change; the other fields of the request are ignored.
func TestUpdateChangesWhatItsMaskNames(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	s := spec("never")
	s.Tags, s.MetadataJson = []string{"old"}, `{"k": 1}`
	name := r.create(s)
	after, err := r.UpdateEval(r.within(), &agentv1.UpdateEvalRequest{
		Eval:       &agentv1.Eval{Name: name, Spec: &agentv1.EvalSpec{Tags: []string{"new"}, MetadataJson: `{}`, MaxSamples: new(int32(7)), Task: "other"}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.tags", "spec.max_samples"}}, Reason: "why",
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"new"}, after.GetSpec().GetTags())
	assert.EqualValues(t, 7, after.GetSpec().GetMaxSamples())
	assert.Empty(t, after.GetSpec().GetMetadataJson(), "an answer is without content")
	assert.Equal(t, "t", after.GetSpec().GetTask())
	got, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name, Content: true})
	require.NoError(t, err)
	assert.JSONEq(t, `{"k": 1}`, got.GetSpec().GetMetadataJson())
	assert.Equal(t, []string{"new"}, got.GetSpec().GetTags())
	lifted, err := r.UpdateEval(r.within(), &agentv1.UpdateEvalRequest{
		Eval: &agentv1.Eval{Name: name}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.max_samples"}},
	})
	require.NoError(t, err)
	assert.Nil(t, lifted.GetSpec().MaxSamples)
	_, err = r.UpdateEval(r.within(), &agentv1.UpdateEvalRequest{Eval: &agentv1.Eval{Name: name, Spec: &agentv1.EvalSpec{MaxSamples: new(int32(0))}}})
	require.ErrorContains(t, err, "at least one sample must be at work")
}

// An empty mask means the set fields; a mask with an unset field clears it. An outdated etag changes nothing.
func TestAnUpdateIsOfTheStateThatItsEtagNames(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	s := spec("never")
	s.Tags = []string{"old"}
	name := r.create(s)
	update := func(etag string, s *agentv1.EvalSpec, paths ...string) (*agentv1.Eval, error) {
		return r.UpdateEval(r.within(), &agentv1.UpdateEvalRequest{
			Eval: &agentv1.Eval{Name: name, Spec: s, Etag: etag}, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		})
	}
	first, err := update("", &agentv1.EvalSpec{MaxSamples: new(int32(7))})
	require.NoError(t, err)
	assert.Equal(t, []string{"old"}, first.GetSpec().GetTags())
	_, err = update("1", &agentv1.EvalSpec{Tags: []string{"new"}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), "%v", err)
	got, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, []string{"old"}, got.GetSpec().GetTags())
	got, err = update(got.GetEtag(), nil, "spec.tags")
	require.NoError(t, err)
	assert.Empty(t, got.GetSpec().GetTags())
	assert.EqualValues(t, 7, got.GetSpec().GetMaxSamples())
}

// The etag of an evaluation at work changes with what an update sets, and not with each sample.
func TestAnUpdateOfAnEvaluationOutlivesTheEndsOfItsSamples(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	r.runs.will("quick", agentv1.RunState_RUN_STATE_SUCCEEDED)
	made, err := r.CreateEval(r.within(), &agentv1.CreateEvalRequest{Parent: project, Spec: spec("quick", "slow")})
	require.NoError(t, err)
	_, err = r.watchUntil(&agentv1.WatchEvalRequest{Name: made.GetName()}, func(w *agentv1.WatchEvalResponse) bool { return w.GetEvent().GetSampleFinished() != nil })
	require.NoError(t, err)
	update := &agentv1.UpdateEvalRequest{Eval: &agentv1.Eval{Name: made.GetName(), Etag: made.GetEtag(), Spec: &agentv1.EvalSpec{Tags: []string{"new"}}}}
	updated, err := r.UpdateEval(r.within(), update)
	require.NoError(t, err)
	assert.Greater(t, updated.GetHead(), made.GetHead())
	_, err = r.UpdateEval(r.within(), update)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), "%v", err)
	list, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	assert.Equal(t, updated.GetEtag(), list.GetEvals()[0].GetEtag())
}

// A cancel ends the active samples once; a resume runs those again and no others.
func TestCancelAndResume(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	r.runs.will("quick", agentv1.RunState_RUN_STATE_SUCCEEDED)
	name := r.create(spec("quick", "slow"))
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name}, func(w *agentv1.WatchEvalResponse) bool { return w.GetEvent().GetSampleFinished() != nil })
	require.NoError(t, err)
	cancelled, err := r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name, RequestId: "stop", Reason: "enough"})
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, cancelled.GetState())
	assert.EqualValues(t, 1, cancelled.GetProgress().GetSucceeded())
	assert.EqualValues(t, 1, cancelled.GetProgress().GetCancelled())
	again, err := r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name, RequestId: "stop", Reason: "enough"})
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, again.GetState())

	r.runs.will("slow", agentv1.RunState_RUN_STATE_SUCCEEDED)
	resumed, err := r.ResumeEval(r.within(), &agentv1.ResumeEvalRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, name, resumed.GetName())
	r.watch(&agentv1.WatchEvalRequest{Name: name})
	ended, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, ended.GetState())
	samples, err := r.ListSamples(r.within(), &agentv1.ListSamplesRequest{Parent: name})
	require.NoError(t, err)
	attempts := map[string]int32{}
	for _, sample := range samples.GetSamples() {
		attempts[sample.GetId()] = sample.GetAttempts()
	}
	assert.Equal(t, map[string]int32{"quick": 1, "slow": 2}, attempts)
	_, err = r.ResumeEval(r.within(), &agentv1.ResumeEvalRequest{Name: name})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED), "with nothing left to do it says so: %v", err)
}

func TestAnEvaluationIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.create(spec("slow"))
	now, err := r.WaitEval(r.within(), &agentv1.WaitEvalRequest{Name: name, Timeout: durationpb.New(time.Millisecond)})
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_RUNNING, now.GetState(), "the time is over")
	ended := make(chan *agentv1.Eval, 1)
	go func() {
		one, err := r.WaitEval(r.within(), &agentv1.WaitEvalRequest{Name: name})
		assert.NoError(t, err)
		ended <- one
	}()
	_, err = r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, waittest.For(t, ended, "the evaluation that is waited for").GetState())
	_, err = r.WaitEval(r.within(), &agentv1.WaitEvalRequest{Name: name + "x"})
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
}

// A watch with progress sends the progress of open effects of the evaluation's runs, as it changes.
func TestAWatchOfAnEvaluationTellsOfOpenEffects(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.create(spec("slow"))
	key := progress.Key{Run: project + "/runs/r", Eval: name, Intent: 4}
	r.notes.Post(progress.Key{Run: "another's", Intent: 1}, &agentv1.RunNote{})
	said := 0
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, func(w *agentv1.WatchEvalResponse) bool {
		if w.GetProgress() == nil {
			return false
		}
		switch said {
		case 0: // nothing is known yet
			assert.Empty(t, w.GetNotes())
			r.notes.Post(key, &agentv1.RunNote{Sample: "slow", Note: &effectv1.Note{Message: "slow down"}})
			said++
		case 1:
			if len(w.GetNotes()) == 1 {
				assert.Equal(t, "slow down", w.GetNotes()[0].GetNote().GetMessage())
				r.notes.Clear(key)
				said++
			}
		case 2:
			return len(w.GetNotes()) == 0
		}
		return false
	})
	require.NoError(t, err)
}

// A watch sends each event once and in order, continues after a cursor, and leaves content out unless it is requested.
func TestWatch(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.done("a", "b")
	all := r.watch(&agentv1.WatchEvalRequest{Name: name, Content: true, Progress: true})
	var events []*agentv1.WatchEvalResponse
	var progress *agentv1.Eval
	for _, w := range all {
		if w.GetEvent() != nil {
			events = append(events, w)
		} else {
			progress = w.GetProgress()
		}
	}
	for i, w := range events {
		assert.EqualValues(t, i+1, w.GetEvent().GetSeq())
	}
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, events[len(events)-1].GetEvent().GetEvalStateChanged().GetState())
	assert.EqualValues(t, 2, progress.GetProgress().GetSucceeded(), "the last progress is that of the end")

	rest := r.watch(&agentv1.WatchEvalRequest{Name: name, Cursor: events[1].GetCursor()})
	require.Len(t, rest, len(events)-2)
	assert.EqualValues(t, 3, rest[0].GetEvent().GetSeq())
	assert.Empty(t, r.watch(&agentv1.WatchEvalRequest{Name: name, Cursor: events[len(events)-1].GetCursor()}), "all was sent")
	other := r.done("c")
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: other, Cursor: events[1].GetCursor()}, nil)
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "a cursor belongs to its evaluation")
}

// A watch reads what it sends, and not the events before it. Watchers of the progress share what was read for another.
func TestAWatchOfAnEvaluationReadsWhatItSends(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.done("a", "b", "c", "d", "e", "f")
	all := r.watch(&agentv1.WatchEvalRequest{Name: name, Progress: true})
	require.Greater(t, len(all), 12)
	late := all[len(all)-3].GetCursor() // The end and the progress follow.
	require.NotEmpty(t, late)
	before := r.store.events.Load()
	for range 5 {
		r.watch(&agentv1.WatchEvalRequest{Name: name, Cursor: late})
		rest := r.watch(&agentv1.WatchEvalRequest{Name: name, Cursor: late, Progress: true})
		assert.EqualValues(t, 6, rest[len(rest)-1].GetProgress().GetProgress().GetSucceeded())
	}
	assert.LessOrEqual(t, r.store.events.Load()-before, int64(10*2), "the event at the cursor and the end, for each")
}

func TestScorersMetricsAndReducersAreListed(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	list, err := r.ListScorers(r.within(), &agentv1.ListScorersRequest{Parent: project})
	require.NoError(t, err)
	schemas := map[string]string{}
	for _, s := range list.GetScorers() {
		assert.NotEmpty(t, s.GetDescription(), s.GetName())
		schemas[s.GetName()] = s.GetParametersJson()
	}
	assert.Contains(t, schemas["match"], `"location"`, "with the parameters that they take")
	assert.Contains(t, list.GetMetrics(), "accuracy")
	assert.Contains(t, list.GetReducers(), "mean")
}

// More runs wait than a list gives at once; all count.
func TestEveryRunThatWaitsCounts(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.create(spec("a"))
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, func(w *agentv1.WatchEvalResponse) bool { return w.GetProgress().GetProgress().GetRunning() == 1 })
	require.NoError(t, err)
	const many = 1200
	since := timestamppb.New(time.Now().Truncate(time.Millisecond))
	for i := range many {
		wait := &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_WORKER, Message: fmt.Sprint("no worker ", i), Since: timestamppb.New(since.AsTime().Add(time.Duration(i) * time.Second))}
		r.runs.waitsFor(t, name, fmt.Sprint("w", i), wait)
	}
	r.runs.waitsFor(t, name, "q", &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_QUOTA, Message: "full", Since: since})
	e, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.NoError(t, err)
	assert.EqualValues(t, many+1, e.GetProgress().GetWaiting())
	want := []*agentv1.EvalWait{{Reason: agentv1.WaitReason_WAIT_REASON_QUOTA, Message: "full", Since: since, Samples: 1}, {Reason: agentv1.WaitReason_WAIT_REASON_WORKER, Message: "no worker 0", Since: since, Samples: many}}
	assert.Empty(t, cmp.Diff(want, e.GetProgress().GetWaits(), protocmp.Transform()))
	_, err = r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name, RequestId: "stop"})
	require.NoError(t, err)
}

// The waits of an evaluation are sent although no event occurs in it.
func TestWaitsAreTold(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.create(spec("a")) // Its run is active until it is cancelled.
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, func(w *agentv1.WatchEvalResponse) bool { return w.GetProgress().GetProgress().GetRunning() == 1 })
	require.NoError(t, err)
	since := timestamppb.Now()
	waits := func(w *agentv1.WatchEvalResponse) bool {
		if w.GetProgress() != nil && len(w.GetProgress().GetProgress().GetWaits()) == 0 {
			r.runs.wait(name, &agentv1.EvalWait{Reason: agentv1.WaitReason_WAIT_REASON_SERVICE, Message: "sandboxd does not answer", Since: since, Samples: 1})
		}
		return len(w.GetProgress().GetProgress().GetWaits()) == 1
	}
	_, err = r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, waits)
	require.NoError(t, err)
	e, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.NoError(t, err)
	assert.EqualValues(t, 1, e.GetProgress().GetWaiting())
	require.Len(t, e.GetProgress().GetWaits(), 1)
	assert.Equal(t, since.AsTime(), e.GetProgress().GetWaits()[0].GetSince().AsTime())
	_, err = r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name, RequestId: "stop"})
	require.NoError(t, err)
}

func TestAnEvaluationIsDeletedWithItsRuns(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	name := r.done("a", "b")
	working := r.create(spec("slow"))
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: working}, func(w *agentv1.WatchEvalResponse) bool { return w.GetEvent().GetSampleAdmitted() != nil })
	require.NoError(t, err)
	_, err = r.DeleteEval(r.within(), &agentv1.DeleteEvalRequest{Name: working})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_IN_USE), "%v", err)
	_, err = r.DeleteEval(r.within(), &agentv1.DeleteEvalRequest{Name: name})
	require.NoError(t, err)
	_, err = r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
	_, err = r.ResumeEval(r.within(), &agentv1.ResumeEvalRequest{Name: name})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RESOURCE_NOT_FOUND), "%v", err)
	listed, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, listed.GetEvals(), 1)
	assert.Equal(t, working, listed.GetEvals()[0].GetName())
	_, err = r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: working})
	require.NoError(t, err)
}

// Active samples show their usage so far, their activity, and their waits; the sums of the evaluation include them.
func TestSamplesAtWorkAreShown(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	r.runs.will("done", agentv1.RunState_RUN_STATE_SUCCEEDED)
	s := spec("asks", "parked", "done")
	s.Models[0].Model = "openai/gpt-4o"
	name := r.create(s)
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name}, func(w *agentv1.WatchEvalResponse) bool { return w.GetEvent().GetSampleFinished() != nil })
	require.NoError(t, err)
	began := timestamppb.New(time.Unix(1000, 0))
	asks := r.runs.show(t, "asks", &agentv1.Run{
		State: agentv1.RunState_RUN_STATE_RUNNING, StartTime: began, Turns: 2, Retries: 1, Activity: "model openai/gpt-4o",
		Usage: map[string]*modelv1.ModelUsage{"openai/gpt-4o": {TotalTokens: 40, TotalCost: new(0.25)}, "mockllm/grader": {TotalTokens: 2}},
	})
	r.notes.Post(progress.Key{Run: asks, Eval: name, Intent: 4}, &agentv1.RunNote{Run: asks, Note: &effectv1.Note{Message: "slow down", FailedAttempts: 3}})
	parked := r.runs.show(t, "parked", &agentv1.Run{State: agentv1.RunState_RUN_STATE_RUNNING})
	r.runs.mu.Lock()
	r.runs.parked = map[string]*agentv1.RunWait{parked: {Reason: agentv1.WaitReason_WAIT_REASON_STORE, Message: "the database is locked"}}
	r.runs.mu.Unlock()

	want := []*agentv1.EvalSample{
		{
			Id: "asks", State: agentv1.RunState_RUN_STATE_RUNNING, StartTime: began, Turns: 2, Retries: 4, Activity: "model openai/gpt-4o", Run: asks,
			Usage: &modelv1.ModelUsage{TotalTokens: 42, TotalCost: new(0.25), CostPartial: true}, Note: &effectv1.Note{Message: "slow down", FailedAttempts: 3},
		},
		{Id: "parked", State: agentv1.RunState_RUN_STATE_WAITING, Run: parked, Wait: &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_STORE, Message: "the database is locked"}},
	}
	for i, sample := range want {
		sample.Name, sample.Epoch, sample.Attempts, sample.Model = fmt.Sprintf("%s/samples/%d.1", name, i+1), 1, 1, "openai/gpt-4o"
	}
	list, err := r.ListSamples(r.within(), &agentv1.ListSamplesRequest{Parent: name})
	require.NoError(t, err)
	require.Len(t, list.GetSamples(), 3)
	assert.Empty(t, cmp.Diff(want, list.GetSamples()[:2], protocmp.Transform()))
	one, err := r.GetSample(r.within(), &agentv1.GetSampleRequest{Name: want[0].GetName()})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want[0], one, protocmp.Transform()))

	got, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.NoError(t, err)
	all, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, all.GetEvals(), 1)
	said, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, func(w *agentv1.WatchEvalResponse) bool { return w.GetProgress() != nil })
	require.NoError(t, err)
	last := said[len(said)-1]
	for _, e := range []*agentv1.Eval{got, all.GetEvals()[0], last.GetProgress()} {
		assert.EqualValues(t, 42, e.GetProgress().GetTotalTokens())
		assert.InDelta(t, 0.25, e.GetProgress().GetTotalCost(), 1e-9)
		assert.True(t, e.GetProgress().GetCostPartial(), "one model has no price")
	}
	assert.Empty(t, cmp.Diff(want, last.GetRunning(), protocmp.Transform()))

	_, err = r.CancelEval(r.within(), &agentv1.CancelEvalRequest{Name: name})
	require.NoError(t, err)
	list, err = r.ListSamples(r.within(), &agentv1.ListSamplesRequest{Parent: name})
	require.NoError(t, err)
	assert.Empty(t, list.GetSamples()[0].GetActivity(), "nothing is at work any more")
}

// TestADamagedRowStopsNoEvaluation damages the rows of an active evaluation and of one of its runs. Lists and the
// evaluation have everything that other rows hold.
func TestADamagedRowStopsNoEvaluation(t *testing.T) {
	t.Parallel()
	r := serveEvals(t)
	done, name := r.done("a"), r.create(spec("slow", "slower"))
	_, err := r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, func(w *agentv1.WatchEvalResponse) bool {
		return w.GetProgress().GetProgress().GetRunning() == 2
	})
	require.NoError(t, err)
	run := r.runs.show(t, "slow", &agentv1.Run{State: agentv1.RunState_RUN_STATE_RUNNING, Turns: 3})
	r.runs.show(t, "slower", &agentv1.Run{State: agentv1.RunState_RUN_STATE_RUNNING, Turns: 4})
	r.runs.waitsFor(t, name, "w", &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_STORE, Since: timestamppb.Now()})
	list := func() []*agentv1.Eval {
		page, err := r.ListEvals(r.within(), &agentv1.ListEvalsRequest{Parent: project})
		require.NoError(t, err)
		return page.GetEvals()
	}
	want := list()
	require.Len(t, want, 2)
	want[0].Progress.Waits[0].Since = nil // It is in the row alone.
	for _, damaged := range []string{done, name, run} {
		r.store.damaged.Store(damaged, nil)
	}
	assert.Empty(t, cmp.Diff(want, list(), protocmp.Transform()))

	got, err := r.GetEval(r.within(), &agentv1.GetEvalRequest{Name: name})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want[0], got, protocmp.Transform()))
	samples, err := r.ListSamples(r.within(), &agentv1.ListSamplesRequest{Parent: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, samples.GetSamples()[0].GetState())
	assert.EqualValues(t, 4, samples.GetSamples()[1].GetTurns())
	_, err = r.watchUntil(&agentv1.WatchEvalRequest{Name: name, Progress: true}, func(w *agentv1.WatchEvalResponse) bool {
		return len(w.GetRunning()) == 2
	})
	require.NoError(t, err)
}
