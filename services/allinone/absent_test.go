package allinone_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// panics collects the log's lines about panics.
type panics struct {
	mu    sync.Mutex
	lines []string
}

func (p *panics) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic")) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lines = append(p.lines, string(line))
	}
	return len(line), nil
}

func (p *panics) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

// turns are the forms of a request. Those of the second half have empty texts.
const turns = 6

// texts are the values of text fields, by their full names and else by their names; other fields have the value x.
var texts = map[string]string{
	"parent": "projects/default", "evalfleet.agent.v1.ModelRef.model": "mockllm/model", "evalfleet.model.v1.GenerateRequest.model": "mockllm/model",
	"evalfleet.agent.v1.AgentRef.name": "generate", "evalfleet.agent.v1.ScorerRef.name": "match", "evalfleet.agent.v1.MetricRef.name": "mean",
	"driver": "docker", "record_calls": "", "cursor": "", "page_token": "", "etag": "", "filter": "",
}

// filled is a message with all fields set, down to a depth. The members of each oneof take turns.
func filled(m protoreflect.Message, depth, turn int) protoreflect.Message {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() && o.Fields().Get(turn%o.Fields().Len()) != f {
			continue
		}
		switch {
		case f.IsMap():
			if f.MapKey().Kind() != protoreflect.StringKind || f.MapValue().Message() != nil && depth == 0 {
				continue
			}
			values, key := m.Mutable(f).Map(), protoreflect.ValueOfString("default").MapKey()
			if f.MapValue().Message() == nil {
				values.Set(key, scalar(f.MapValue(), turn))
			} else {
				value := values.NewValue()
				filled(value.Message(), depth-1, turn)
				values.Set(key, value)
			}
		case f.Message() != nil && depth == 0:
		case f.IsList():
			if list := m.Mutable(f).List(); f.Message() == nil {
				list.Append(scalar(f, turn))
			} else {
				filled(list.AppendMutable().Message(), depth-1, turn)
			}
		case f.Message() != nil:
			filled(m.Mutable(f).Message(), depth-1, turn)
		default:
			m.Set(f, scalar(f, turn))
		}
	}
	return m
}

func scalar(f protoreflect.FieldDescriptor, turn int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		for _, name := range []string{string(f.FullName()), string(f.Name())} {
			if text, ok := texts[name]; ok {
				return protoreflect.ValueOfString(text)
			}
		}
		if strings.HasSuffix(string(f.Name()), "_json") {
			return protoreflect.ValueOfString("{}")
		}
		if turn >= turns/2 {
			return protoreflect.ValueOfString("")
		}
		return protoreflect.ValueOfString("x")
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(turn%2 == 1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	default:
		return f.Default()
	}
}

// without returns a request with each of its messages left out in turn, and whole.
func without(request proto.Message, give func(proto.Message)) {
	give(request)
	type find = func(root protoreflect.Message) protoreflect.Message
	var walk func(m protoreflect.Message, at find)
	walk = func(m protoreflect.Message, at find) {
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			if f.Message() == nil || !m.Has(f) {
				continue
			}
			changed := func(change func(m protoreflect.Message)) {
				c := proto.Clone(request)
				change(at(c.ProtoReflect()))
				give(c)
			}
			changed(func(m protoreflect.Message) { m.Clear(f) })
			key := protoreflect.ValueOfString("default").MapKey()
			switch {
			case f.IsMap() && f.MapValue().Message() == nil:
			case f.IsMap():
				changed(func(m protoreflect.Message) { m.Mutable(f).Map().Set(key, m.Get(f).Map().NewValue()) })
				walk(m.Get(f).Map().Get(key).Message(), func(root protoreflect.Message) protoreflect.Message {
					return at(root).Mutable(f).Map().Mutable(key).Message()
				})
			case f.IsList():
				changed(func(m protoreflect.Message) { m.Mutable(f).List().Set(0, m.Get(f).List().NewElement()) })
				walk(m.Get(f).List().Get(0).Message(), func(root protoreflect.Message) protoreflect.Message {
					return at(root).Mutable(f).List().Get(0).Message()
				})
			default:
				walk(m.Get(f).Message(), func(root protoreflect.Message) protoreflect.Message { return at(root).Mutable(f).Message() })
			}
		}
	}
	walk(request.ProtoReflect(), func(root protoreflect.Message) protoreflect.Message { return root })
}

// No RPC panics, whichever message within its request is left out.
func TestNoRequestWithoutOneOfItsMessagesPanics(t *testing.T) {
	t.Parallel()
	dir, lock := folder(t, t.TempDir())
	seen := &panics{}
	s := allinone.New(configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock, Logger: slog.New(slog.NewTextHandler(seen, nil))})
	require.NoError(t, s.Start(t.Context()))
	defer func() { assert.NoError(t, s.Stop(context.WithoutCancel(t.Context()), grace)) }()
	conn, err := grpcclient.New(s.Address(), grpcclient.Options{Token: s.Token(), FailFast: true})
	require.NoError(t, err)
	defer conn.Close()

	calls := 0
	call := func(method protoreflect.MethodDescriptor, request proto.Message) {
		calls++
		ctx, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer end()
		answer, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
		require.NoError(t, err)
		path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
		if stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: method.IsStreamingClient()}, path); err == nil {
			_ = stream.SendMsg(request)
			_ = stream.CloseSend()
			_ = stream.RecvMsg(answer.New().Interface())
		}
		for _, line := range seen.take() {
			t.Errorf("%s %v\n%s", path, request, line)
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			if !strings.HasPrefix(string(service.FullName()), "evalfleet.") || strings.HasPrefix(string(service.FullName()), "evalfleet.guest.") {
				continue
			}
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				request, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
				require.NoError(t, err)
				for turn := range turns {
					without(filled(request.New(), 3, turn).Interface(), func(m proto.Message) { call(method, m) })
				}
			}
		}
		return true
	})
	t.Logf("%d calls", calls)
	assert.Greater(t, calls, 500)
}
