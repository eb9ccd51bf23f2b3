package dialecttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// FuzzParseRequest checks that no client's body makes the reader panic, and that a parsed request can be encoded again,
// or is refused as inexpressible in the format. A body without its envelopes is JSON as before.
func FuzzParseRequest(f *testing.F, h Harness) {
	for _, body := range append(h.Requests, string(appendRequest(f, h, conversation())), `[`, `{"model":1}`) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkReopened(t, h.Codec, body)
		body = bytes.ToValidUTF8(body, []byte(string(utf8.RuneError)))
		r, err := h.Codec.ParseRequest(body)
		if err != nil {
			if _, ok := errors.AsType[*dialect.RequestError](err); !ok {
				t.Fatalf("%q: %v is no *dialect.RequestError", body, err)
			}
			return
		}
		if r.Config == nil {
			t.Fatalf("%q: no configuration", body)
		}
		checkAgain(t, h, r)
	})
}

// checkAgain checks that a request can be sent, and encoded in a format that the vendor's server can read.
func checkAgain(t *testing.T, h Harness, r *dialect.Request) {
	t.Helper()
	if _, err := proto.Marshal(&modelv1.GenerateRequest{Messages: r.Messages, Tools: r.Tools, ToolChoice: r.Choice, Config: r.Config}); err != nil {
		t.Fatal(err)
	}
	body, err := h.Codec.AppendRequest(nil, r)
	if _, ok := errors.AsType[*dialect.UnsupportedError](err); err != nil && !ok {
		t.Fatalf("%v is no *dialect.UnsupportedError", err)
	}
	if err == nil && !json.Valid(body) {
		t.Fatalf("%q is no JSON", body)
	}
}

// FuzzDecodeResponse checks that no vendor's answer makes the reader panic, and that a decoded answer can be encoded
// for a client and be sent back to the vendor.
func FuzzDecodeResponse(f *testing.F, h Harness) {
	for _, body := range append(append(h.Responses, h.Malformed...), `{`, `{"error":{"message":"m"}}`) {
		f.Add([]byte(body))
	}
	for body := range h.Errors {
		f.Add([]byte(body))
	}
	for _, output := range outputs(h) {
		f.Add(encode(f, h, output))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if h.Codec.DecodeError(body) == nil {
			t.Fatal("DecodeError never fails")
		}
		response, err := h.Codec.DecodeResponse(body)
		var output *modelv1.ModelOutput
		if err == nil {
			output, err = response.Output(nil)
		}
		if err != nil {
			if !isAnswerError(err) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		checkOutput(t, h, output)
	})
}

// checkOutput checks that an output can be given on, and sent back.
func checkOutput(t *testing.T, h Harness, output *modelv1.ModelOutput) {
	t.Helper()
	for _, oneCall := range []bool{false, true} {
		body, err := h.Codec.AppendResponse(nil, output, dialect.ResponseMeta{Model: "m", Request: &dialect.Request{OneCall: oneCall}})
		if err != nil && !errors.Is(err, dialect.ErrNoChoices) || err == nil && !json.Valid(body) {
			t.Fatalf("the answer became %q: %v", body, err)
		}
	}
	r := &dialect.Request{Model: "m"}
	for _, choice := range output.GetChoices() {
		r.Messages = append(r.Messages, choice.GetMessage())
	}
	checkAgain(t, h, r)
}

// FuzzStream checks that no vendor's stream makes the reader panic, that the result is the same however the stream is
// cut, that its pieces can be streamed to a client, and that the client can read that stream.
func FuzzStream(f *testing.F, h Harness) {
	for _, s := range h.Streams {
		f.Add([]byte(s.Events))
	}
	for _, data := range h.MalformedEvents {
		f.Add([]byte("data: " + data + "\n\n"))
	}
	for _, output := range outputs(h) {
		f.Add([]byte(stream(f, h, output, nil)))
	}
	f.Fuzz(func(t *testing.T, events []byte) {
		s, pieces, err := read(h, bytes.NewReader(events))
		again, more, failed := read(h, iotest.OneByteReader(bytes.NewReader(events)))
		if (err == nil) != (failed == nil) || len(pieces) != len(more) || s.Complete() != again.Complete() {
			t.Fatalf("%q: %d pieces and %v at once, %d and %v by byte", events, len(pieces), err, len(more), failed)
		}
		if err != nil {
			return
		}
		output, err := s.Response().Output(nil)
		if err != nil {
			if !isAnswerError(err) {
				t.Fatalf("%q: %v", events, err)
			}
			return
		}
		for _, oneCall := range []bool{false, true} {
			checkStream(t, h, events, output, pieces, oneCall)
		}
	})
}

// checkStream checks that the pieces of a stream, and its output, can be streamed to a client that can read them.
func checkStream(t *testing.T, h Harness, events []byte, output *modelv1.ModelOutput, pieces []*modelv1.GenerateDelta, oneCall bool) {
	t.Helper()
	var wire bytes.Buffer
	about := meta(h)
	about.Request = &dialect.Request{OneCall: oneCall}
	w := h.Codec.NewStreamWriter(&wire, about)
	for _, piece := range pieces {
		if err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(output); err != nil {
		if !errors.Is(err, dialect.ErrNoChoices) {
			t.Fatal(err)
		}
		return
	}
	written := wire.String()
	client, _, err := read(h, &wire)
	if err != nil || !client.Complete() || !h.NoLastEvent && !client.Done() {
		t.Fatalf("%q became %q: %v", events, written, err)
	}
}

// FuzzScanUsage checks that no bytes make the scan panic.
func FuzzScanUsage(f *testing.F, h Harness) {
	for _, output := range outputs(h) {
		f.Add(encode(f, h, output))
	}
	for _, body := range h.Responses {
		f.Add([]byte(body))
	}
	for _, s := range h.Streams {
		for event, err := range h.Codec.ReadEvents(bytes.NewReader([]byte(s.Events))) {
			if err == nil {
				f.Add(bytes.Clone(event.Data))
			}
		}
	}
	f.Fuzz(func(_ *testing.T, doc []byte) {
		var facts dialect.Facts
		h.Codec.ScanUsage(doc, &facts)
		h.Codec.ScanUsage(doc, &facts)
	})
}
