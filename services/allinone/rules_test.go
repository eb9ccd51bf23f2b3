package allinone_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/allinone"
)

// The comments of fields agree with the servers: the comment of a field, or of a oneof, begins with "Required." if and
// only if a rule refuses a message without it.
func TestAFieldSaysThatItIsRequiredWhenARuleRefusesItsAbsence(t *testing.T) {
	t.Parallel()
	comments := comments(t)
	fields := 0
	protoregistry.GlobalTypes.RangeMessages(func(message protoreflect.MessageType) bool {
		d := message.Descriptor()
		if !strings.HasPrefix(string(d.FullName()), "evalfleet.") || d.IsMapEntry() || d.ParentFile().Path() == "evalfleet/worker/v1/worker_service.proto" {
			return true
		}
		refused := map[string]bool{}
		if invalid, ok := errors.AsType[*protovalidate.ValidationError](protovalidate.Validate(message.New().Interface())); ok {
			for _, violation := range invalid.Violations {
				refused[protovalidate.FieldPathString(violation.Proto.GetField())] = true
			}
		}
		check := func(name protoreflect.Name) {
			comment, known := comments[string(d.FullName())+"."+string(name)]
			require.True(t, known, "%s.%s has no comment that this test finds", d.FullName(), name)
			assert.Equal(t, refused[string(name)], strings.HasPrefix(comment, "Required."), "%s.%s: %q, and refused when absent: %t",
				d.FullName(), name, comment, refused[string(name)])
		}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			fields++
			check(f.Name())
			for _, b := range behaviours(f) {
				assert.True(t, b != annotations.FieldBehavior_REQUIRED || refused[string(f.Name())], "%s.%s has the behaviour REQUIRED", d.FullName(), f.Name())
			}
		}
		for i := range d.Oneofs().Len() {
			if o := d.Oneofs().Get(i); !o.IsSynthetic() {
				check(o.Name())
			}
		}
		return true
	})
	require.Greater(t, fields, 1000)
}

// A text whose comment lists its values is a closed set and an enum, or its comment says "Open:" and who else names
// values; examples follow "such as". No rule holds a text to a list.
func TestATextThatListsItsValuesSaysThatTheyAreOpen(t *testing.T) {
	t.Parallel()
	listed := regexp.MustCompile("`[^`]+`(?: \\([^)]*\\))?(?:,|,? or) `[^`]+`")
	notOfValues := regexp.MustCompile(`(?i)(?:such as|format(?: of \w+( \w+)?)?:) .*?(?:\. |$)`)
	closed := map[string]string{
		"evalfleet.worker.v1.Offer.on_unknown": "the protocol of workers is one file without imports, and its refusal says what to give instead of `ask`",
	}
	lists := 0
	for f, comment := range fields(t) {
		value := f
		if f.IsMap() {
			value = f.MapValue()
		}
		if value.Kind() != protoreflect.StringKind && (!f.IsMap() || f.MapKey().Kind() != protoreflect.StringKind) {
			continue
		}
		rules := rulesOf(f)
		assert.Empty(t, rules.GetString().GetIn(), "%s: a closed set is an enum", f.FullName())
		assert.Empty(t, rules.GetRepeated().GetItems().GetString().GetIn(), "%s: a closed set is an enum", f.FullName())
		if strings.HasSuffix(string(f.Name()), "_json") || !listed.MatchString(notOfValues.ReplaceAllString(comment, "")) {
			continue
		}
		lists++
		if closed[string(f.FullName())] == "" {
			assert.Contains(t, comment, " Open: ", "%s: a closed set is an enum, and the comment of an open one says who else names values", f.FullName())
		}
	}
	assert.Greater(t, lists, 20)
}

// A value of an enum of a request that is not declared is refused. Fields that only a server sets are ignored in a
// request, and so are values of later versions in them.
func TestAnEnumOfARequestTakesItsValuesAlone(t *testing.T) {
	t.Parallel()
	enums := 0
	for f := range requestFields() {
		value := f
		if f.IsMap() {
			value = f.MapValue()
		}
		if value.Kind() != protoreflect.EnumKind || value.Enum().FullName() == "google.protobuf.NullValue" {
			continue
		}
		enums++
		rules := rulesOf(f)
		for _, of := range []*validate.FieldRules{rules.GetRepeated().GetItems(), rules.GetMap().GetValues()} {
			if of != nil {
				rules = of
			}
		}
		assert.True(t, rules.GetEnum().GetDefinedOnly(), "%s needs the rule enum.defined_only", f.FullName())
	}
	assert.Greater(t, enums, 30)
}

// Each field of a resource in a request states whether a client may set it.
func TestAResourceOfARequestSaysWhatAClientMaySet(t *testing.T) {
	t.Parallel()
	comments := fields(t)
	resources := map[protoreflect.FullName]bool{}
	for f := range requestFields() {
		if f.Message() == nil || !proto.HasExtension(f.Message().Options(), annotations.E_Resource) {
			continue
		}
		resources[f.Message().FullName()] = true
		for i := range f.Message().Fields().Len() {
			member := f.Message().Fields().Get(i)
			said := len(behaviours(member)) > 0 || member.ContainingOneof() != nil && !member.ContainingOneof().IsSynthetic()
			comment := comments[member]
			assert.True(t, said || strings.HasPrefix(comment, "Optional") || strings.HasPrefix(comment, "Required"),
				"%s: begin its comment with Optional or Required, or give it a field_behavior", member.FullName())
		}
	}
	assert.Greater(t, len(resources), 5)
}

// heldByTheService are fields of requests whose bound the service checks, with the reason.
var heldByTheService = map[string]string{
	"evalfleet.agent.v1.Epochs.count":                         "its error says what to leave out",
	"evalfleet.agent.v1.FailOnError.threshold":                "no bound: what is below 1 has another meaning",
	"evalfleet.agent.v1.Sample.id":                            "no bound: its default is a number",
	"evalfleet.content.v1.DocumentRange.start_index":          "comes as the provider says it",
	"evalfleet.model.v1.GenerateConfig.frequency_penalty":     "the provider's bound",
	"evalfleet.model.v1.GenerateConfig.presence_penalty":      "the provider's bound",
	"evalfleet.model.v1.GenerateConfig.top_p":                 "the provider's bound",
	"evalfleet.model.v1.GenerateConfig.top_logprobs":          "the provider's bound",
	"evalfleet.agent.v1.SampleFile.blob":                      "of all files together",
	"evalfleet.agent.v1.SampleRange.start":                    "its error names the range",
	"evalfleet.blob.v1.PutBlobRequest.content":                tooLarge,
	"evalfleet.blob.v1.UploadBlobRequest.chunk":               tooLarge,
	"evalfleet.model.v1.AdaptiveConnections.decrease_factor":  "the configuration of models is checked by the same code",
	"evalfleet.model.v1.AdaptiveConnections.scale_up_percent": "the configuration of models is checked by the same code",
	"evalfleet.model.v1.LogitBias.values":                     "the provider's bound",
	"evalfleet.model.v1.GenerateConfig.prompt_logprobs":       "the provider's bound",
	"evalfleet.sandbox.v1.AnswerInboundRequest.chunk":         "not built",
	"evalfleet.sandbox.v1.DialPortRequest.data":               "not built",
	"evalfleet.sandbox.v1.ExecCheck.files":                    "of all files together",
	"evalfleet.sandbox.v1.ExecSpec.max_output_bytes":          "what is above the cap is cut to it",
	"evalfleet.sandbox.v1.ExecSpec.stdin":                     tooLarge,
	"evalfleet.sandbox.v1.FileToPlace.blob":                   "of all files together",
	"evalfleet.sandbox.v1.Limits.open_files":                  "a bound of the machine and the configuration",
	"evalfleet.sandbox.v1.Limits.pids":                        "its error says what to leave out",
	"evalfleet.sandbox.v1.SandboxSpec.lease":                  "checked with the defaults filled in",
	"evalfleet.sandbox.v1.SandboxSpec.max_lifetime":           "checked with the defaults filled in",
	"evalfleet.sandbox.v1.UploadFileRequest.chunk":            tooLarge,
	"evalfleet.sandbox.v1.WriteExecInputRequest.data":         tooLarge,
	"evalfleet.sandbox.v1.WriteFileRequest.body":              tooLarge,
	"evalfleet.sandbox.v1.WriteSessionRequest.data":           "not built",
	"evalfleet.worker.v1.Offer.name":                          workerFile,
	"evalfleet.worker.v1.OffloadedBody.hash":                  workerFile,
}

const (
	tooLarge   = "a body that is too large is REQUEST_TOO_LARGE, where a rule has INVALID_REQUEST"
	workerFile = "the protocol of workers is one file without imports"
)

// A bound in the comment of a request's field is a rule of the field, or the service checks it.
func TestABoundInACommentIsARule(t *testing.T) {
	t.Parallel()
	stated := regexp.MustCompile(`(?i)\bat (most|least) (\d|once|one\b)|\b(above|below|from|cap) \d|\b\d+ to \d|\bletters\b|hexadecimal digits`)
	comments := fields(t)
	rules, held := 0, map[string]string{}
	for f := range requestFields() {
		comment := comments[f]
		if f.Kind() == protoreflect.BoolKind || !stated.MatchString(comment) {
			continue
		}
		name := string(f.FullName())
		of := rulesOf(f)
		ruled := of.GetType() != nil && of.GetEnum() == nil || len(of.GetCel()) > 0
		if ruled {
			rules++
			for _, number := range statedNumbers(comment) {
				if strings.Contains(comment, "letters") { // A pattern has the number in its parts.
					continue
				}
				assert.Contains(t, ruledNumbers(of.ProtoReflect()), number, "%s: its rules have another bound than its comment: %q", name, comment)
			}
		} else if reason := heldByTheService[name]; reason != "" {
			held[name] = reason
		}
		assert.True(t, ruled || held[name] != "", "%s: give it the rule that its comment states: %q", name, comment)
	}
	// A oneof has no rule for all of its members: the service checks the bound of its comment.
	for name, comment := range commentsOfOneofs(t) {
		if stated.MatchString(comment) {
			held[name] = heldByTheService[name]
			assert.NotEmpty(t, held[name], "%s: hold the bound that its comment states: %q", name, comment)
		}
	}
	assert.Equal(t, heldByTheService, held, "what has a rule, or states no bound, is not listed")
	assert.Greater(t, rules, 60)
}

// commentsOfOneofs are the comments of the oneofs of requests.
func commentsOfOneofs(t *testing.T) map[string]string {
	t.Helper()
	all, of := comments(t), map[string]string{}
	for f := range requestFields() {
		if oneof := f.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			name := string(oneof.FullName())
			of[name] = all[name]
		}
	}
	return of
}

// boundInAComment is a bound as comments state it: a number with its unit. What exceeds a cap is cut and no fault.
var boundInAComment = regexp.MustCompile(`(?i)\b(?:at most|at least|above|below|to) (\d[\d,]*(?:\.\d+)?)(\^\d+)?(?: (KiB|MiB|GiB|min|h|days)\b)?`)

// statedNumbers are the bounds that a comment states, in bytes, seconds or without a unit.
func statedNumbers(comment string) []float64 {
	units := map[string]float64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "min": 60, "h": 3600, "days": 86400}
	var all []float64
	for _, m := range boundInAComment.FindAllStringSubmatch(comment, -1) {
		if n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64); err == nil && m[2] == "" {
			all = append(all, n*units[m[3]])
		}
	}
	return all
}

// ruledNumbers are all numbers in the rules of a field, those in its expressions and patterns included.
func ruledNumbers(rules protoreflect.Message) []float64 {
	var all []float64
	add := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch one := v.Interface().(type) {
		case protoreflect.Message:
			all = append(all, ruledNumbers(one)...)
		case string:
			for _, digits := range regexp.MustCompile(`\d+(?:\.\d+)?`).FindAllString(one, -1) {
				n, _ := strconv.ParseFloat(digits, 64)
				all = append(all, n)
			}
		default:
			if n, err := strconv.ParseFloat(fmt.Sprint(one), 64); err == nil {
				all = append(all, n)
			}
		}
	}
	rules.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.IsList() {
			for i := range v.List().Len() {
				add(f, v.List().Get(i))
			}
			return true
		}
		add(f, v)
		return true
	})
	return all
}

// A field with the name of a resource refers to the resource's type, and its comment has one of the type's patterns. A
// map cannot refer, and the protocol of workers is one file without imports.
func TestAFieldThatNamesAResourceRefersToIt(t *testing.T) {
	t.Parallel()
	comments := fields(t)
	types := map[string][]string{}
	for f := range comments {
		if resource := resourceOf(f.ContainingMessage()); resource != nil {
			types[resource.GetType()] = resource.GetPattern()
		}
	}
	format := regexp.MustCompile("Format(?: of \\w+)?: `([^`]+)`")
	references := 0
	for f, comment := range comments {
		pattern := format.FindStringSubmatch(comment)
		isItself := f.Name() == "name" && resourceOf(f.ContainingMessage()) != nil
		if pattern == nil || f.IsMap() || isItself || f.ParentFile().Path() == "evalfleet/worker/v1/worker_service.proto" {
			continue
		}
		references++
		reference, _ := proto.GetExtension(f.Options(), annotations.E_ResourceReference).(*annotations.ResourceReference)
		switch {
		case reference.GetType() == "*":
		case reference.GetChildType() != "":
			assert.Contains(t, types, reference.GetChildType(), "%s", f.FullName())
		default:
			of := strings.ReplaceAll(strings.Join(types[reference.GetType()], " "), "=**", "")
			assert.Contains(t, strings.Fields(of), pattern[1], "%s needs a resource_reference to what its comment says", f.FullName())
		}
	}
	assert.Greater(t, references, 140)
}

// A name that is not of its form is refused with its field and the form that is wanted. The services read names
// themselves, since their errors say more than a pattern's.
func TestANameOfAnotherFormIsRefusedWithTheFormThatIsWanted(t *testing.T) {
	dir, lock := folder(t, t.TempDir())
	server, stop := start(t, configured(t, "127.0.0.1:0"), allinone.Deps{Dir: dir, Lock: lock})
	defer stop()
	conn, err := grpcclient.New(server.Address(), grpcclient.Options{Token: server.Token(), FailFast: true})
	require.NoError(t, err)
	defer conn.Close()
	wanted := regexp.MustCompile(`(projects|accounts|providers)/`)
	names := 0
	for method, d := range methods() {
		if proto.HasExtension(d.Options(), optionsv1.E_NotBuilt) {
			continue
		}
		for i := range d.Input().Fields().Len() {
			f := d.Input().Fields().Get(i)
			if !proto.HasExtension(f.Options(), annotations.E_ResourceReference) {
				continue
			}
			names++
			request := requestOf(t, d).ProtoReflect()
			if f.IsList() {
				list := request.NewField(f).List()
				list.Append(protoreflect.ValueOfString("no/name"))
				request.Set(f, protoreflect.ValueOfList(list))
			} else {
				request.Set(f, protoreflect.ValueOfString("no/name"))
			}
			fault, _ := rpcerr.As(answerTo(t, conn, d, request.Interface(), false))
			if assert.NotNil(t, fault, "%s.%s", method, f.Name()) {
				assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, fault.Reason, "%s.%s: %v", method, f.Name(), fault)
				assert.Regexp(t, wanted, fault.Error(), "%s.%s", method, f.Name())
				if assert.NotEmpty(t, fault.Fields, "%s.%s: %v", method, f.Name(), fault) {
					assert.Equal(t, string(f.Name()), strings.TrimSuffix(fault.Fields[0].Path, "[0]"), "%s.%s: %v", method, f.Name(), fault)
				}
			}
		}
	}
	assert.Greater(t, names, 80)
}

func resourceOf(d protoreflect.MessageDescriptor) *annotations.ResourceDescriptor {
	resource, _ := proto.GetExtension(d.Options(), annotations.E_Resource).(*annotations.ResourceDescriptor)
	return resource
}

// requestFields are the fields of the requests of all methods, of the results of workers, and of all messages within
// them. Fields that only a server sets are not among them.
func requestFields() map[protoreflect.FieldDescriptor]bool {
	all := map[protoreflect.FieldDescriptor]bool{}
	seen := map[protoreflect.FullName]bool{}
	var add func(d protoreflect.MessageDescriptor)
	add = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if slices.Contains(behaviours(f), annotations.FieldBehavior_OUTPUT_ONLY) {
				continue
			}
			all[f] = true
			if f.Message() != nil {
				add(f.Message())
			}
		}
	}
	for _, method := range methods() {
		add(method.Input())
	}
	for _, result := range []proto.Message{
		&workerv1.ToolResultPayload{}, &workerv1.ScorerResultPayload{}, &workerv1.ContinueResultPayload{}, &workerv1.AgentResultPayload{},
	} {
		add(result.ProtoReflect().Descriptor())
	}
	return all
}

// fields are those of the protocol, with their comments.
func fields(t *testing.T) map[protoreflect.FieldDescriptor]string {
	t.Helper()
	comments := comments(t)
	all := map[protoreflect.FieldDescriptor]string{}
	protoregistry.GlobalTypes.RangeMessages(func(message protoreflect.MessageType) bool {
		d := message.Descriptor()
		if !strings.HasPrefix(string(d.FullName()), "evalfleet.") || d.IsMapEntry() {
			return true
		}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			comment, known := comments[string(f.FullName())]
			require.True(t, known, "%s has no comment that this test finds", f.FullName())
			all[f] = comment
		}
		return true
	})
	return all
}

func behaviours(f protoreflect.FieldDescriptor) []annotations.FieldBehavior {
	all, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return all
}

func rulesOf(f protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

// comments are the comments in the protocol, each in one line, by the full name of their field or oneof.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../proto/evalfleet/*/v1/*.proto")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^package ([\w.]+);|^message (\w+) \{|((?:^ +//.*\n)+) +(?:oneof (\w+) \{|(?:repeated |optional )?(?:map<.*>|[\w.]+) (\w+) = \d+)`)
	nextLine := regexp.MustCompile(`\n *// ?`)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		within, message := "", ""
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			switch {
			case m[1] != "":
				within = m[1]
			case m[2] != "":
				message = m[2]
			default:
				text := strings.TrimPrefix(strings.TrimSpace(m[3]), "// ")
				all[within+"."+message+"."+m[4]+m[5]] = nextLine.ReplaceAllString(text, " ")
			}
		}
	}
	return all
}
