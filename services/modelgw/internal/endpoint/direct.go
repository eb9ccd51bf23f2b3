package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// maxRefusalBytes bounds an error answer, which is held until it is known whether the call is retried.
	maxRefusalBytes = 1 << 20
	// bytesPerToken estimates tokens of a request that was not counted, and of an answer that cannot be read.
	bytesPerToken = 4
	// mostTokens bounds that estimate: media in a body are fewer tokens than their bytes would be as text.
	mostTokens = 200_000
)

// relay is a call that is relayed as bytes.
type relay struct {
	*exchange
	endpoints *Endpoints
	model     *provider.Model
	// upstream is the target with the credential of the latest attempt, whose instance is at.
	upstream *provider.Upstream
	at       *provider.Model
	// below is what follows the upstream's address: a path, and the query.
	below string
	body  spliced
	// more means that a failure that another model might cure is returned, and not answered.
	more bool
	// optional means that servers of the format may lack the path of the request, which then fails with errLacksPath.
	optional bool

	// refused is the vendor's last answer that was an error.
	refused *refused
	// facts are the findings of the side reader.
	facts dialect.Facts
	// firstPiece is when the first piece of a streamed answer was sent on; zero before.
	firstPiece time.Time
	// half means that an answer ended before its end, and that nothing of it was sent.
	half bool
	// broken is why the answer ended before its end, once the vendor had given some of it.
	broken error
}

// refused is a vendor's answer that is an error.
type refused struct {
	status int
	header http.Header
	body   []byte
}

// errLacksPath is the failure of a request whose path the server does not know.
var errLacksPath = errors.New("the server does not know the path")

// upstreamOf is the target of the client's format with an instance of the model; nil if it has none.
func (r *relay) upstreamOf(m *provider.Model) *provider.Upstream {
	return m.Constant().Upstream(r.about.Name)
}

// serves reports whether an instance of the model takes the client's format too.
func (r *relay) serves(m *provider.Model) bool { return r.upstreamOf(m) != nil }

// run makes the call, with the stages around each attempt.
func (r *relay) run(ctx context.Context, call *generate.Call, stages []generate.Stage) error {
	outcome := &generate.Outcome{}
	_, err := generate.Chain(r.attempt, stages...)(ctx, call, outcome)
	if log := r.endpoints.deps.Logger; log.Enabled(ctx, slog.LevelDebug) {
		log.DebugContext(ctx, "passed through", "model", call.Model.FullName(), "account", call.Model.Account, "key", outcome.Key, "attempts", outcome.Attempts, "queued", outcome.Queued,
			"response_id", r.facts.ID, "stop_reason", r.facts.StopReason, "usage", r.facts.Usage, "request_id", r.id)
	}
	switch {
	case r.broken != nil:
		return r.broken
	case err == nil || r.begun:
		return err
	}
	failed := provider.RPC(err)
	if failure, ok := provider.As(err); ok && r.refused != nil && !(r.more && generate.Curable(failed)) {
		if r.optional && r.upstream.LacksPath != nil && r.upstream.LacksPath(failure) {
			return errLacksPath
		}
		return r.passRefused(r.refused, failure)
	}
	return failed
}

// passRefused relays a vendor's error unchanged. An error about our credential is replaced: the credential is not the
// caller's, and the text may contain a part of it. One after which a client may ask again says when: some clients end
// at one that does not.
func (r *relay) passRefused(refused *refused, failure *provider.Error) error {
	if failure.Auth {
		return refuse(http.StatusBadRequest, r.upstream.Provider+": the key of the account was refused; check the account's configuration")
	}
	copyHeader(r.out.Header(), refused.header)
	if failure.Class != provider.Final {
		if r.triesAgain {
			r.giveUp()
		}
		if busy := refused.status == http.StatusTooManyRequests || refused.status == http.StatusServiceUnavailable; busy && r.out.Header().Get(retryAfter) == "" {
			r.out.Header().Set(retryAfter, wholeSeconds(max(failure.RetryAfter, time.Second)))
		}
	}
	r.begun = true
	r.out.WriteHeader(refused.status)
	_, err := r.out.Write(refused.body)
	return err
}

// attempt makes one attempt. An answer with a success status is relayed at once; any other is held.
func (r *relay) attempt(call context.Context, c *generate.Call, o *generate.Outcome) (*provider.Response, error) {
	if c.Model != r.at {
		r.at, r.upstream = c.Model, r.upstreamOf(c.Model)
	}
	ctx := call
	r.refused = nil
	start := time.Now()
	o.Attempts++
	o.FirstPiece = 0
	defer func() { o.Working += time.Since(start) }()
	if limit := r.endpoints.deps.AttemptTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the attempt took longer than %s", limit))
		defer cancel()
	}
	answer, err := r.send(ctx)
	switch {
	case call.Err() != nil:
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, call.Err()
	case err != nil:
		return nil, r.unreached(context.Cause(ctx), err)
	}
	defer answer.Body.Close()
	o.OnHeaders(answer.StatusCode, answer.Header)
	switch answer.StatusCode / 100 {
	case 2:
	case 3:
		// A client that followed the redirect would send the platform's token to its target.
		return nil, provider.Redirected(r.upstream.Provider)
	default:
		return nil, r.keep(answer)
	}
	r.firstPiece = time.Time{}
	err = r.copy(answer)
	if !r.firstPiece.IsZero() {
		o.FirstPiece = r.firstPiece.Sub(start)
	}
	switch {
	case r.half:
		r.broken, o.BrokenOff = provider.RPC(err), true
	case r.begun:
		r.broken, o.BrokenOff = err, err != nil || r.facts.Failed
	case call.Err() != nil:
		return nil, call.Err()
	case ctx.Err() != nil:
		return nil, r.unreached(context.Cause(ctx), err)
	default:
		return nil, err
	}
	output := &modelv1.ModelOutput{Model: r.upstream.Model, Usage: r.usage(o.BrokenOff)}
	if r.facts.StopReason != modelv1.StopReason_STOP_REASON_UNSPECIFIED {
		output.Choices = []*modelv1.Choice{{StopReason: r.facts.StopReason}}
	}
	if r.facts.ID != "" {
		output.ResponseId = &r.facts.ID
	}
	if model := r.facts.Billing.Model; model != "" {
		output.Fallback = &modelv1.ModelFallback{Model: r.upstream.Model, FallbackModel: model}
	}
	return &provider.Response{Output: output, Billing: r.facts.Billing}, nil
}

// send posts the request.
func (r *relay) send(ctx context.Context) (*http.Response, error) {
	address := provider.Below(r.upstream.URL, r.below)
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, address, r.body.reader())
	if err != nil {
		return nil, err
	}
	post.ContentLength = r.body.size()
	post.GetBody = func() (io.ReadCloser, error) { return r.body.reader(), nil }
	for _, name := range r.passed {
		if values := r.request.Header[name]; len(values) > 0 {
			post.Header[name] = values
		}
	}
	post.Header.Set("Content-Type", "application/json")
	post.Header.Set("Accept-Encoding", "identity") // The side reader must be able to read the client's answer.
	r.upstream.Authorize(post.Header)
	return provider.Send(r.upstream.HTTP, post)
}

// unreached is the failure of an attempt that had no answer. cut is why we ended it, if we did.
func (r *relay) unreached(cut, err error) error {
	if refused := provider.Unsendable(err); refused != nil && cut == nil {
		return refused
	}
	failure := &provider.Error{Provider: r.upstream.Provider, Class: provider.Transient, Message: "the connection failed", Cause: err}
	if cut != nil {
		failure.Message, failure.Cause = cut.Error(), errors.Join(provider.ErrCut, err)
	}
	return failure
}

// keep holds an error answer, and returns its meaning.
func (r *relay) keep(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusalBytes))
	if err != nil {
		return &provider.Error{Provider: r.upstream.Provider, Class: provider.Transient, Status: answer.StatusCode, Message: "the connection failed", Cause: err}
	}
	r.refused = &refused{status: answer.StatusCode, header: answer.Header, body: text}
	return r.upstream.Refused(answer.StatusCode, answer.Header, text)
}

// chunkBytes is the most that one read of an answer takes that is not kept, and chunks are buffers for such reads.
const chunkBytes = 32 << 10

var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// copy relays an answer as it arrives. A stream is flushed at each read; other answers are sent as the server sees fit.
// A stream in which nothing comes is not begun, nor an answer in another form, such as a proxy's page in its place, nor
// one that comes at once and is not whole.
func (r *relay) copy(answer *http.Response) (err error) {
	side := newSideReader(provider.MediaType(answer.Header) == "text/event-stream", r.Codec, &r.facts)
	side.encoded = answer.Header.Get("Content-Encoding") != ""
	side.full = side.encoded
	defer func() {
		if whole := side.end(); !whole && err == nil {
			err = fmt.Errorf("%s: the answer ended before its end", r.upstream.Provider)
		}
	}()
	var chunk *[chunkBytes]byte
	defer func() {
		if chunk != nil {
			chunks.Put(chunk)
		}
	}()
	for {
		piece := side.room(answer.ContentLength)
		if piece == nil {
			if chunk == nil {
				chunk = chunks.Get().(*[chunkBytes]byte)
			}
			piece = chunk[:]
		}
		n, err := answer.Body.Read(piece)
		piece = piece[:n]
		if !r.begun && (n > 0 || err != nil) {
			if err := r.beginWith(answer, side, piece, err); err != nil {
				if r.half {
					side.add(piece) // What was used is charged.
				}
				return err
			}
		}
		if n > 0 {
			if err := r.pass(piece, side.events || answer.ContentLength < 0); err != nil {
				return fmt.Errorf("the client does not read: %w", err)
			}
			side.add(piece)
			if side.events && r.firstPiece.IsZero() {
				r.firstPiece = time.Now()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: the answer broke off: %w", r.upstream.Provider, err)
		}
	}
}

// beginWith begins an answer with its first piece, or refuses it.
func (r *relay) beginWith(answer *http.Response, side *sideReader, piece []byte, failed error) error {
	failure := &provider.Error{Provider: r.upstream.Provider, Class: provider.Transient}
	switch nothing := len(piece) == 0; {
	case nothing && !errors.Is(failed, io.EOF):
		failure.Message, failure.Cause = "the connection failed", failed
		return failure
	case nothing && side.events:
		failure.Status, failure.Message = answer.StatusCode, "the stream ended before anything came"
		return failure
	case !side.events && !side.encoded:
		plausible, events := opens(piece)
		if !plausible {
			return &provider.Error{Provider: r.upstream.Provider, Invalid: true, Status: answer.StatusCode, Message: "the answer is no JSON object"}
		}
		side.events = events
		if all := errors.Is(failed, io.EOF) || int64(len(piece)) == answer.ContentLength; all && !events && !closes(piece) {
			r.half = true
			return &provider.Error{Provider: r.upstream.Provider, Invalid: true, Status: answer.StatusCode, Message: "the answer ended before its end"}
		}
	}
	r.head(answer)
	return nil
}

// head sends the head of an answer on.
func (r *relay) head(answer *http.Response) {
	copyHeader(r.out.Header(), answer.Header)
	r.begun = true
	r.out.WriteHeader(answer.StatusCode)
}

// pass sends a piece of an answer on.
func (r *relay) pass(piece []byte, flush bool) error {
	if flush {
		return r.out.Send(piece)
	}
	_, err := r.out.Write(piece)
	return err
}

// usage is the usage of a call, whose answer may have broken off: the vendor's report, or else an estimate, so that a
// client cannot escape a budget by not asking for usage.
func (r *relay) usage(brokenOff bool) *modelv1.ModelUsage {
	if generate.Counts(r.facts.Usage) && !brokenOff {
		return r.facts.Usage
	}
	return generate.Unfinished(r.facts.Usage, r.inputTokens(), r.facts.Pieces)
}

func (r *relay) inputTokens() int64 { return min(r.body.size()/bytesPerToken, mostTokens) }

// ownHeaders are headers of an answer that concern only the vendor and us: those of the connection (RFC 9110, 7.6.1),
// and those that a client would attribute to us.
var ownHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Set-Cookie", "Alt-Svc", "Strict-Transport-Security",
}

// copyHeader copies the headers of an answer that are for the client. Another gateway's fallback does not replace ours.
func copyHeader(to, from http.Header) {
	var named []string
	for _, list := range from["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			named = append(named, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for name, values := range from {
		ours := name == modelHeader && to.Get(name) != ""
		if !ours && !slices.Contains(ownHeaders, name) && !slices.Contains(named, name) {
			to[name] = values
		}
	}
}
