package allinone_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/programtest"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// doors are the two APIs of a server: gRPC and REST.
type doors struct {
	conn   *grpc.ClientConn
	client *http.Client
	// api is the base URL of REST.
	api, token string
	// listens is how long a stream that refuses nothing is listened to; zero means [quiet].
	listens time.Duration
}

// refusing are the doors for calls that must be refused, however long it takes.
func (d doors) refusing() doors {
	d.listens = waittest.Bound
	return d
}

// open starts a server that the test asks.
func open(t *testing.T, changes ...func(*allinone.Config)) doors {
	t.Helper()
	dir, lock := folder(t, t.TempDir())
	cfg := configured(t, "127.0.0.1:0")
	for _, change := range changes {
		change(&cfg)
	}
	server, stop := start(t, cfg, allinone.Deps{Dir: dir, Lock: lock})
	conn, err := grpcclient.New(server.Address(), grpcclient.Options{Token: server.Token(), FailFast: true})
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		assert.NoError(t, conn.Close())
		stop()
	})
	return doors{conn: conn, client: client, api: "http://" + server.Address(), token: server.Token().Reveal()}
}

// withGuest configures the server with the program that runs within sandboxes.
func withGuest(t *testing.T) func(*allinone.Config) {
	t.Helper()
	dir, err := programtest.Build("", "./services/sandboxd/cmd/guestd")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return func(c *allinone.Config) {
		c.Sandboxd.GuestPath, c.Sandboxd.SearchPath = filepath.Join(dir, "guestd"), os.Getenv("PATH")
	}
}

// as returns the same doors for a caller with another token; empty for none.
func (d doors) as(t *testing.T, token string) doors {
	t.Helper()
	conn, err := grpcclient.New(strings.TrimPrefix(d.api, "http://"), grpcclient.Options{Token: config.NewSecret(token), FailFast: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return doors{conn: conn, client: d.client, api: d.api, token: token}
}

// said is an answer.
type said struct {
	// status is that of HTTP; 0 over gRPC.
	status int
	// code is the name of the status, such as NOT_FOUND; empty if the call succeeded.
	code, reason, message string
	fields                []string
	// open is true if a stream was still open, without an error, when its time ended.
	open bool
	body string
}

func (s said) String() string {
	return fmt.Sprintf("%d %s %s %q: %s", s.status, s.code, s.reason, s.fields, s.message)
}

// quiet is how long a stream that refuses nothing is listened to. A longer time could only find more errors.
const quiet = time.Second

// rest calls over REST. An error has the one form of all, or the test fails.
func (d doors) rest(t *testing.T, verb, path, body string, headers ...string) said {
	t.Helper()
	ctx := waittest.Context(t)
	if len(headers) > 0 && headers[0] == "" { // A stream.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(d.listens, quiet))
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, verb, d.api+path, strings.NewReader(body))
	require.NoError(t, err)
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	for _, header := range headers {
		if name, value, ok := strings.Cut(header, ": "); ok {
			req.Header.Set(name, value)
		}
	}
	resp, err := d.client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return said{open: true}
	}
	require.NoError(t, err, "%s %s", verb, path)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if errors.Is(err, context.DeadlineExceeded) {
		return said{open: true}
	}
	require.NoError(t, err, "%s %s", verb, path)
	s := said{status: resp.StatusCode, body: string(text)}
	if resp.StatusCode < 400 {
		return s
	}
	var got struct {
		Error struct {
			Code            int
			Status, Message string
			Details         []struct {
				Type            string `json:"@type"`
				Reason, Domain  string
				FieldViolations []struct{ Field, Description string }
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	require.NoError(t, decoder.Decode(&got), "%s %s: %s", verb, path, text)
	assert.False(t, decoder.More(), "%s %s: %s", verb, path, text)
	assert.Equal(t, resp.StatusCode, got.Error.Code, "%s %s: %s", verb, path, text)
	s.code, s.message = got.Error.Status, got.Error.Message
	for _, detail := range got.Error.Details {
		s.reason += detail.Reason
		for _, v := range detail.FieldViolations {
			s.fields = append(s.fields, v.Field)
			assert.NotEmpty(t, v.Description, "%s %s: %s", verb, path, text)
		}
	}
	return s
}

// grpc calls over gRPC.
func (d doors) grpc(t *testing.T, method protoreflect.MethodDescriptor, request proto.Message) said {
	t.Helper()
	ctx := waittest.Context(t)
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	answerType, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	require.NoError(t, err)
	answer := answerType.New().Interface()
	if method.IsStreamingClient() || method.IsStreamingServer() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(d.listens, quiet))
		defer cancel()
		stream, opened := d.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer()}, path)
		if err = opened; err == nil {
			_ = stream.SendMsg(request) // Its error is that of the answer.
			_ = stream.CloseSend()
			err = stream.RecvMsg(answer)
		}
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return said{open: true}
		}
	} else {
		err = d.conn.Invoke(ctx, path, request, answer)
	}
	if err == nil {
		return said{}
	}
	s := said{code: codeName(rpcerr.Code(err)), message: err.Error()}
	if e, ok := rpcerr.As(rpcerr.FromStatus(err)); ok {
		s.message = e.Message
		if e.Reason != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			s.reason = rpcerr.ReasonName(e.Reason)
		}
		for _, f := range e.Fields {
			s.fields = append(s.fields, f.Path)
		}
	}
	return s
}

// codeName is a code as REST writes it: NOT_FOUND.
func codeName(code codes.Code) string {
	var name strings.Builder
	for i, c := range code.String() {
		if i > 0 && c >= 'A' && c <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteString(strings.ToUpper(string(c)))
	}
	return name.String()
}

// binding is a call over REST: a verb and a path, with the field that is the body.
type binding struct {
	method     protoreflect.MethodDescriptor
	verb, path string
	// body is the message of the body; nil if there is none.
	body protoreflect.MessageDescriptor
	// inPath are the fields that the path sets.
	inPath []string
}

// anyVariable is a variable of a path, with the pattern of its value if it has one.
var anyVariable = regexp.MustCompile(`\{([\w.]+)(?:=([^}]+))?\}`)

// url is the path for something that does not exist, in the project that does.
func (b binding) url() string {
	return anyVariable.ReplaceAllStringFunc(b.path, func(v string) string {
		pattern := anyVariable.FindStringSubmatch(v)[2]
		return strings.NewReplacer("projects/*", "projects/default", "**", "absent", "*", "absent").Replace(cmp.Or(pattern, "absent"))
	})
}

// bindings are all calls over REST.
func bindings() []binding {
	var all []binding
	for _, name := range slices.Sorted(maps.Keys(methods())) {
		m := methods()[name]
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			b := binding{method: m}
			for verb, path := range map[string]string{
				http.MethodGet: r.GetGet(), http.MethodPost: r.GetPost(), http.MethodPut: r.GetPut(), http.MethodPatch: r.GetPatch(), http.MethodDelete: r.GetDelete(),
			} {
				if path != "" {
					b.verb, b.path = verb, path
				}
			}
			if b.path == "" {
				continue
			}
			for _, v := range anyVariable.FindAllStringSubmatch(b.path, -1) {
				b.inPath = append(b.inPath, v[1])
			}
			switch body := r.GetBody(); body {
			case "":
			case "*":
				b.body = m.Input()
			default:
				b.body = m.Input().Fields().ByName(protoreflect.Name(body)).Message()
			}
			all = append(all, b)
		}
	}
	return all
}

func (b binding) stream() string {
	if b.method.IsStreamingServer() {
		return ""
	}
	return "X-None: 1"
}

// holds checks an answer: it is no error, or an error with a reason and, for a faulty request, its field.
func holds(t *testing.T, got said, what string, args ...any) {
	t.Helper()
	what = fmt.Sprintf(what, args...) + "\n" + got.String()
	if got.open || got.code == "" {
		return
	}
	assert.NotEmpty(t, got.reason, what)
	assert.NotEmpty(t, got.message, what)
	assert.NotContains(t, []string{"INTERNAL", "UNKNOWN", "DATA_LOSS"}, got.code, what)
	assert.Equal(t, got.code == "UNIMPLEMENTED", got.reason == "NOT_BUILT_YET" || got.reason == "METHOD_NOT_ALLOWED", what)
	if got.code == "INVALID_ARGUMENT" {
		assert.NotEmpty(t, got.fields, what)
		for _, f := range got.fields {
			assert.NotEmpty(t, f, what)
		}
	}
}

// wrongValue is a JSON value that no field of f's kind accepts; empty if there is none.
func wrongValue(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsList() || f.IsMap():
		return `"x"`
	case f.Message() != nil && f.Message().FullName() == "google.protobuf.Value":
		return ""
	case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
		return `7`
	default:
		return `"no such value"`
	}
}

// Whatever is wrong with a call, each method refuses it in one form, with a reason and the field as the caller spelled
// it: an empty request, an unknown field, a value of another kind, an unknown parameter, a verb that the path has not.
func TestEveryMethodRefusesWhatIsWrongInOneForm(t *testing.T) {
	t.Parallel()
	d := open(t)
	verbs := map[string][]string{}
	for _, b := range bindings() {
		verbs[b.url()] = append(verbs[b.url()], b.verb)
	}
	asked, sure := 0, d.refusing()
	for _, b := range bindings() {
		asked++
		url, stream, name := b.url(), b.stream(), string(b.method.Name())
		empty := ""
		if b.body != nil {
			empty = "{}"
		}
		notBuilt := proto.HasExtension(b.method.Options(), optionsv1.E_NotBuilt)
		door := d
		if notBuilt {
			door = sure
		}
		got := door.rest(t, b.verb, url, empty, stream)
		holds(t, got, "%s, empty", name)
		if notBuilt && got.code != "INVALID_ARGUMENT" {
			assert.Equal(t, "NOT_BUILT_YET", got.reason, name)
		}
		refused := func(got said, field, what string) {
			t.Helper()
			what = name + ", " + what + "\n" + got.String()
			assert.Equal(t, fmt.Sprintf("400 INVALID_ARGUMENT INVALID_REQUEST %q", []string{field}), strings.Split(got.String(), ": ")[0], what)
		}
		refused(sure.rest(t, b.verb, url+"?noSuchParameter=1", empty, stream), "noSuchParameter", "unknown parameter")
		if b.body != nil {
			refused(sure.rest(t, b.verb, url, `{"noSuchField": 1}`, stream), "noSuchField", "unknown field")
			refused(sure.rest(t, b.verb, url, `{"noSuchField": 1}`, stream, "Idempotency-Key: k"), "noSuchField", "unknown field")
			for i := range b.body.Fields().Len() {
				f := b.body.Fields().Get(i)
				if value := wrongValue(f); value != "" {
					refused(sure.rest(t, b.verb, url, fmt.Sprintf(`{%q: %s}`, f.JSONName(), value), stream), f.JSONName(), "value of another kind")
					refused(sure.rest(t, b.verb, url, fmt.Sprintf(`{%q: %s}`, f.Name(), value), stream), string(f.Name()), "value of another kind")
				}
			}
		} else {
			for i := range b.method.Input().Fields().Len() {
				f := b.method.Input().Fields().Get(i)
				if f.Message() == nil && !f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind && !slices.Contains(b.inPath, string(f.Name())) {
					refused(sure.rest(t, b.verb, url+"?"+f.JSONName()+"=no+such", "", stream), f.JSONName(), "value of another kind")
				}
			}
		}
		for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if slices.Contains(verbs[url], verb) {
				continue
			}
			got := sure.rest(t, verb, url, empty, stream)
			assert.Contains(t, []string{"ROUTE_NOT_FOUND", "METHOD_NOT_ALLOWED"}, got.reason, "%s %s\n%s", verb, url, got)
		}
	}
	assert.Greater(t, asked, 130)
}

// The same over gRPC: an empty request, and a name of another kind, are refused with a reason and a field.
func TestEveryMethodRefusesAnEmptyRequestAndANameOfAnotherKind(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, name := range slices.Sorted(maps.Keys(methods())) {
		m := methods()[name]
		requestType, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)
		holds(t, d.grpc(t, m, requestType.New().Interface()), "%s, empty", name)
		for _, v := range pathVariable.FindAllStringSubmatch(pathOf(m), -1) {
			f := m.Input().Fields().ByName(protoreflect.Name(v[1]))
			if f == nil || f.Kind() != protoreflect.StringKind {
				continue
			}
			request := requestOf(t, m)
			request.ProtoReflect().Set(f, protoreflect.ValueOfString("projects/default/others/absent/kinds/none"))
			got := d.refusing().grpc(t, m, request)
			if proto.HasExtension(m.Options(), optionsv1.E_NotBuilt) {
				assert.Equal(t, "NOT_BUILT_YET", got.reason, "%s\n%s", name, got)
				continue
			}
			assert.Equal(t, "INVALID_ARGUMENT", got.code, "%s of another kind\n%s", name, got)
			assert.Equal(t, []string{v[1]}, got.fields, "%s of another kind\n%s", name, got)
		}
	}
}
