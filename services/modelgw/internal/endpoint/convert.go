package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/cachemark"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/buffer"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/seal"
)

// convert answers a request through the canonical form.
func (e *Endpoints) convert(ctx context.Context, x *exchange, m *provider.Model, doc []byte) error {
	if !utf8.Valid(doc) { // Members are kept as they are, such as a tool's schema, and a message is UTF-8.
		doc = bytes.ToValidUTF8(doc, []byte(string(utf8.RuneError)))
	}
	a, err := x.ParseRequest(doc)
	if err != nil {
		return err
	}
	x.address.complete(a)
	seal.Receive(a.Messages, x.about.Name)
	singleTexts(a.Messages, m.Kind.Dialect == x.about.Name)
	asked, s := a, shape(&answered{format: x.format, sealed: seal.Stream{Format: x.about.Name}})
	if a.Compact || x.compacts {
		if asked, s, err = x.compaction(a); err != nil {
			return err
		}
	}
	if err := e.fit(ctx, x, asked, m); err != nil {
		return err
	}
	r, err := e.canonical(x, m, asked)
	if err != nil {
		return err
	}
	about := dialect.ResponseMeta{
		ID: x.about.IDPrefix + strings.TrimPrefix(x.id, "req_"), Model: a.Model, Created: time.Now().Unix(), IncludeUsage: a.IncludeUsage, Request: a,
	}
	ctx = provider.WithClientID(ctx, x.id)
	if a.Stream && !x.compacts {
		return e.follow(ctx, x, r, about, s)
	}
	return e.whole(ctx, x, r, about, s)
}

// whole answers with a body.
func (e *Endpoints) whole(ctx context.Context, x *exchange, r *modelv1.GenerateRequest, about dialect.ResponseMeta, s shape) error {
	answer, err := e.deps.Models.Answer(ctx, r, e.cfg.MaxRetryWait)
	if err != nil {
		return err
	}
	output, err := x.output(answer, s)
	if err != nil {
		return err
	}
	if answer.GetOutput().GetFallback() != nil && answer.GetModel() != "" && answer.GetModel() != r.GetModel() {
		x.out.Header().Set(modelHeader, answer.GetModel())
	}
	encoded, err := buffer.Of(dialect.OutputSize(output), func(dst []byte) ([]byte, error) { return s.body(dst, output, about) })
	if err != nil {
		return refuse(http.StatusBadGateway, err.Error())
	}
	defer encoded.Release()
	return x.send(http.StatusOK, encoded.Bytes)
}

// output returns what a client gets of an answer, or why it gets none of it, or no more.
func (x *exchange) output(answer *modelv1.GenerateResponse, s shape) (*modelv1.ModelOutput, error) {
	said, tooLong := chat.Overflow(answer.GetOutput())
	switch {
	case answer.GetBrokenOff():
		return nil, errBrokenOff
	case tooLong && !x.begun:
		return nil, &refusal{Failure: x.TooLong(said)}
	}
	x.sayCached(answer)
	return s.end(answer.GetOutput())
}

// canonical returns the call for a client's request.
func (e *Endpoints) canonical(x *exchange, m *provider.Model, a *dialect.Request) (*modelv1.GenerateRequest, error) {
	r := &modelv1.GenerateRequest{
		Parent: resource.Project(x.project), RequestId: x.request.Header.Get(keyHeader), Model: m.FullName(), Account: x.account,
		Messages: a.Messages, Tools: a.Tools, ToolChoice: a.Choice, Config: a.Config,
	}
	if x.fallback { // The fallbacks are those of the requested model.
		r.Fallbacks = new(false)
	}
	if len(r.GetRequestId()) > maxKeyBytes {
		return nil, refuse(http.StatusBadRequest, fmt.Sprintf("the header %s may have %d bytes; use a shorter key", keyHeader, maxKeyBytes))
	}
	if r.GetRequestId() != "" {
		for i, m := range a.Messages { // The same request must have the same content, its messages' ids included.
			m.Id = strconv.Itoa(i + 1)
		}
	}
	e.bound(r.Config)
	expiry := x.request.Header.Get(cacheHeader)
	if expiry == "" {
		return r, nil
	}
	life, forever, err := respcache.Lifetime(&modelv1.CachePolicy{Expiry: expiry})
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the header "+cacheHeader+": "+err.Error())
	}
	if life <= 0 && !forever {
		return nil, refuse(http.StatusBadRequest, "the header "+cacheHeader+": nothing is kept for "+expiry+"; give a time such as 1h, or leave it out")
	}
	r.Config.Cache = &modelv1.CacheSetting{Enabled: true, Policy: &modelv1.CachePolicy{Expiry: expiry}}
	return r, nil
}

// maxKeyBytes bounds a key, as the protocol does.
const maxKeyBytes = 128

// errRestarted ends a stream whose call restarted: a client cannot discard received pieces.
var errRestarted = refuse(http.StatusConflict, "the model broke off and began anew; ask again")

// errBrokenOff ends an answer that the vendor cut off: the client's format has no other way to mark it as incomplete.
var errBrokenOff = refuse(http.StatusBadGateway, "the model's answer broke off before its end; what came of it is not the whole")

// follow answers with events. The header is sent with the first piece, so that an earlier failure has a status of its
// own.
func (e *Endpoints) follow(ctx context.Context, x *exchange, r *modelv1.GenerateRequest, about dialect.ResponseMeta, s shape) error {
	sink := x.sink()
	w := x.NewStreamWriter(sink, about)
	err := e.deps.Models.Follow(ctx, r, e.cfg.MaxRetryWait, func(event *modelv1.StreamGenerateResponse) (err error) {
		switch event := event.GetEvent().(type) {
		case *modelv1.StreamGenerateResponse_Started:
			if model := event.Started.GetModel(); !x.begun && model != "" && model != r.GetModel() {
				x.out.Header().Set(modelHeader, model)
			}
			return nil
		case *modelv1.StreamGenerateResponse_Delta:
			x.beginStream()
			piece := s.delta(event.Delta)
			if err = w.Write(piece); err == nil && piece.GetPiece() == nil {
				err = w.Ping()
			}
		case *modelv1.StreamGenerateResponse_Completed:
			output, failure := x.output(event.Completed, s)
			if failure != nil {
				return failure
			}
			x.beginStream()
			if err = w.Close(output); err == nil { // Otherwise the failure is yet to come, within the list.
				err = sink.Close()
			}
		case *modelv1.StreamGenerateResponse_Heartbeat:
			if !x.begun {
				return nil
			}
			err = w.Ping()
		case *modelv1.StreamGenerateResponse_Restart:
			if x.begun {
				return errRestarted
			}
			return nil
		default:
			return nil
		}
		if err != nil {
			return err
		}
		return x.out.FlushError()
	})
	if err == nil || !x.begun || ctx.Err() != nil {
		return err
	}
	// The stream ends as the vendor's would: with an event that names the failure.
	failure := x.refusalOf(err)
	e.log(ctx, x, err, time.Since(x.start))
	return errors.Join(w.Fail(failure.Failure), sink.Close(), x.out.FlushError())
}

// sayCached sets the header of an answer that came from the response cache. A streamed one comes whole, so that no part
// of it is sent before.
func (x *exchange) sayCached(answer *modelv1.GenerateResponse) {
	if answer.GetCache() == modelv1.CacheUse_CACHE_USE_READ {
		x.out.Header().Set(cacheStatus, "evalfleet; hit")
	}
}

func (x *exchange) beginStream() {
	if x.begun {
		return
	}
	kind := "text/event-stream; charset=utf-8"
	if x.address.list {
		kind = "application/json; charset=utf-8"
	}
	x.out.Header().Set("Cache-Control", "no-cache")
	x.begin(http.StatusOK, kind, -1)
}

// convertCount answers how many tokens a request takes through the canonical form: as the model's provider counts them,
// else by an estimate.
func (e *Endpoints) convertCount(ctx context.Context, x *exchange, m *provider.Model, doc []byte) error {
	a, err := x.counter.ParseCountRequest(doc)
	if err != nil {
		return err
	}
	x.address.complete(a)
	seal.Receive(a.Messages, x.about.Name)
	caps := provider.CapabilitiesOf(m.Provider, a.Config)
	if err := e.fitHosted(ctx, x, a, m, caps.Hosted); err != nil {
		return err
	}
	if err := e.inline(ctx, x, a, caps.Fetches); err != nil {
		return err
	}
	count, err := e.deps.Models.CountTokens(ctx, &modelv1.CountTokensRequest{
		Parent: resource.Project(x.project), Model: m.FullName(), Account: x.account, Messages: a.Messages, Tools: a.Tools,
	})
	if err != nil {
		return err
	}
	return x.send(http.StatusOK, x.counter.AppendCountResponse(nil, count.GetMessageTokens()+count.GetToolTokens()))
}

// singleTexts turns what a model said before, where it is a list of one text, into the text. Formats without lists put
// each part on a line of its own, so that it would reach the model otherwise than the model said it, and find no cached
// prefix. A mark for a prompt cache, which other formats do not have there, goes with the list unless marks are kept.
func singleTexts(messages []*modelv1.ChatMessage, keepMarks bool) {
	for _, m := range messages {
		parts := m.GetContent().GetList().GetParts()
		if m.GetRole() != modelv1.Role_ROLE_ASSISTANT || len(parts) != 1 {
			continue
		}
		said := parts[0].GetText()
		if said == nil || keepMarks && cachemark.On(parts[0]) {
			continue
		}
		plain := chat.TextPart(said.GetText())
		plain.GetText().CacheBreakpoint = said.CacheBreakpoint
		if proto.Equal(parts[0], plain) {
			m.Content = chat.TextContent(said.GetText())
		}
	}
}
