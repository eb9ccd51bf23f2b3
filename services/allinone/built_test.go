package allinone_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// Methods that are declared but not built are marked: the RPCs that answer NOT_BUILT_YET are those whose comment in the
// protocol states it and whose option not_built names the capability, and those with `x-evalfleet-status: not-built` in
// the OpenAPI document (proto/openapi.yaml).
func TestWhatIsNotBuiltIsMarked(t *testing.T) {
	dir, lock := folder(t, t.TempDir())
	server, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	defer stop()
	conn, err := grpcclient.New(server.Address(), grpcclient.Options{Token: server.Token(), FailFast: true})
	require.NoError(t, err)
	defer conn.Close()

	all, commented := methods(), commentsSayNotBuilt(t)
	require.Greater(t, len(all), 100)
	var notBuilt, overREST []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		err := call(t, conn, all[name], slices.Contains(commented, name))
		if !rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET) {
			continue
		}
		notBuilt = append(notBuilt, name)
		if proto.HasExtension(all[name].Options(), annotations.E_Http) {
			overREST = append(overREST, name)
		}
	}
	assert.Equal(t, notBuilt, commented, "the comment of an RPC says %q when it is not built", notBuiltComment)
	assert.Equal(t, notBuilt, optionsSayNotBuilt(all), "the option not_built of an RPC names its capability when it is not built")

	resp, err := http.Get("http://" + server.Address() + "/openapi.json")
	require.NoError(t, err)
	defer resp.Body.Close()
	var document struct {
		Paths map[string]map[string]struct {
			ID      string `json:"operationId"`
			Summary string
			Status  string `json:"x-evalfleet-status"`
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&document))
	var marked []string
	for _, operations := range document.Paths {
		for _, o := range operations {
			if o.Status != "" {
				assert.Equal(t, "not-built", o.Status)
				assert.Contains(t, strings.ReplaceAll(o.Summary, "\n", " "), notBuiltComment)
				marked = append(marked, strings.Replace(o.ID, "_", ".", 1))
			}
		}
	}
	slices.Sort(marked)
	assert.Equal(t, overREST, marked, "proto/openapi.yaml lists the RPCs that are not built")
}

// Whether the baseline holds a method depends on its file: a file has methods that are built or methods that are not,
// and buf.yaml exempts exactly the latter files from the comparison with the baseline.
func TestFilesOfWhatIsNotBuiltAreExempt(t *testing.T) {
	t.Parallel()
	var unstable []string
	for _, service := range services() {
		notBuilt := 0
		for i := range service.Methods().Len() {
			if proto.HasExtension(service.Methods().Get(i).Options(), optionsv1.E_NotBuilt) {
				notBuilt++
			}
		}
		if notBuilt > 0 {
			assert.Equal(t, service.Methods().Len(), notBuilt, "%s is built in part: what is not stands in a file of its own", service.FullName())
			assert.Equal(t, 1, service.ParentFile().Services().Len(), "%s stands in a file of its own", service.FullName())
			unstable = append(unstable, service.ParentFile().Path())
		}
	}
	text, err := os.ReadFile("../../buf.yaml")
	require.NoError(t, err)
	var buf struct {
		Breaking struct{ Ignore []string }
	}
	require.NoError(t, yaml.Unmarshal(text, &buf))
	slices.Sort(unstable)
	assert.Equal(t, unstable, buf.Breaking.Ignore)
}

const notBuiltComment = "Not built yet: fails with NOT_BUILT_YET."

// commentsSayNotBuilt returns the RPCs, as Service.Method, whose comment in the protocol states that they are not
// built.
func commentsSayNotBuilt(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../proto/evalfleet/*/v1/*_service.proto")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^service (\w+)|((?:^  //.*\n)+)  rpc (\w+)\(`)
	nextLine := regexp.MustCompile(`\n *// ?`)
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		service := ""
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "" {
				service = m[1]
			} else if strings.Contains(nextLine.ReplaceAllString(m[2], " "), notBuiltComment) {
				names = append(names, service+"."+m[3])
			}
		}
	}
	slices.Sort(names)
	return names
}

// optionsSayNotBuilt returns the RPCs that have the option not_built.
func optionsSayNotBuilt(all map[string]protoreflect.MethodDescriptor) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if proto.HasExtension(all[name].Options(), optionsv1.E_NotBuilt) {
			names = append(names, name)
		}
	}
	return names
}

// methods returns the RPCs that clients can call, by Service.Method.
func methods() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	for _, service := range services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			all[string(service.Name())+"."+string(method.Name())] = method
		}
	}
	return all
}

// services returns those that clients can call. The service of the guest is for sandboxd alone.
func services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(file.Package()), "evalfleet.") && file.Package() != "evalfleet.guest.v1" {
			for i := range file.Services().Len() {
				all = append(all, file.Services().Get(i))
			}
		}
		return true
	})
	return all
}

// requests are those that the fields' descriptions alone do not make valid.
var requests = map[string]string{
	"AnswerInboxItemRequest":    `{"answer": {"unknownOutcome": "UNKNOWN_OUTCOME_DECISION_FAIL"}}`,
	"CancelToolsRequest":        `{"calls": [{"callId": "absent"}]}`,
	"CreateEvalRequest":         `{"spec": {"task": "t", "dataset": {}, "models": [{"model": "absent"}]}}`,
	"CreateKeyRequest":          `{"key": {"principal": "user:ada", "role": "KEY_ROLE_VIEWER"}}`,
	"CreateRunRequest":          `{"spec": {"steps": [{"name": "absent"}]}}`,
	"CreateSandboxGroupRequest": `{"specs": {"default": {}}}`,
	"DownloadBlobRequest":       `{"hash": "` + strings.Repeat("0", 64) + `"}`,
	"ExecRequest":               `{"spec": {"argv": ["true"]}}`,
	"ExecuteToolsRequest":       `{"calls": [{"id": "absent", "function": "absent"}]}`,
	"ExtendPrefixRequest":       `{"messages": [{"role": "ROLE_USER"}]}`,
	"GetBlobRequest":            `{"hash": "` + strings.Repeat("0", 64) + `"}`,
	"OpenPortRequest":           `{"sandboxPort": 80}`,
	"PostMessageRequest":        `{"text": "absent"}`,
	"RetuneLimitsRequest":       `{"limits": {"turns": "1"}}`,
	"StreamExecRequest":         `{"spec": {"argv": ["true"]}}`,
	"UploadFileRequest":         `{"path": "absent"}`,
}

// call calls a method with a valid request for things that do not exist, and returns its error. A stream that stays
// open without a message is built; the wait for that is short, since a longer one could only find more errors.
func call(t *testing.T, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor, notBuilt bool) error {
	t.Helper()
	return answerTo(t, conn, method, requestOf(t, method), notBuilt)
}

// answerTo calls a method and returns its error.
func answerTo(t *testing.T, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor, request proto.Message, notBuilt bool) error {
	t.Helper()
	ctx := waittest.Context(t)
	path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	answerType, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	require.NoError(t, err)
	answer := answerType.New().Interface()
	if !method.IsStreamingClient() && !method.IsStreamingServer() {
		return conn.Invoke(ctx, path, request, answer)
	}
	if !notBuilt {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer()}, path)
	require.NoError(t, err)
	_ = stream.SendMsg(request) // Its error is that of the answer.
	_ = stream.CloseSend()
	return stream.RecvMsg(answer)
}

// requestOf returns a valid request: required fields are set, and names are those of resources that do not exist.
func requestOf(t *testing.T, method protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	requestType, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	require.NoError(t, err)
	request := requestType.New()
	fill(request)
	for _, m := range pathVariable.FindAllStringSubmatch(pathOf(method), -1) {
		if field := method.Input().Fields().ByName(protoreflect.Name(m[1])); field != nil && field.Kind() == protoreflect.StringKind {
			name := strings.NewReplacer("projects/*", "projects/default", "**", "absent", "*", "absent").Replace(m[2])
			request.Set(field, protoreflect.ValueOfString(name))
		}
	}
	if example := requests[string(method.Input().Name())]; example != "" {
		more := requestType.New().Interface()
		require.NoError(t, protojson.Unmarshal([]byte(example), more))
		more.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			request.Set(f, v) // It replaces the present value, also in a list.
			return true
		})
	}
	assert.NoError(t, protovalidate.Validate(request.Interface()), "%s: `requests` needs an example", method.Input().Name())
	return request.Interface()
}

// pathVariable is a field in the path of a method over REST, with the pattern of its value.
var pathVariable = regexp.MustCompile(`\{(\w+)=([^}]+)\}`)

func pathOf(method protoreflect.MethodDescriptor) string {
	rule, _ := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	return rule.GetGet() + rule.GetPost() + rule.GetPut() + rule.GetPatch() + rule.GetDelete()
}

// fill sets the required fields of a message.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		behavior, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		if !slices.Contains(behavior, annotations.FieldBehavior_REQUIRED) {
			continue
		}
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(valueOf(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message())
		default:
			m.Set(f, valueOf(f))
		}
	}
}

func valueOf(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("absent")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("absent"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	default:
		return f.Default() // The validation of the request names the missing field.
	}
}
