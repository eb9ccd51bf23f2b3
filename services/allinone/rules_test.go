package allinone_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// What the protocol says of a field is what servers hold: the comment of a field, or of a oneof, begins with
// "Required." when a rule refuses a message without it, and never otherwise.
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
			behaviours, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
			for _, b := range behaviours {
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

// comments are the first lines of comments in the protocol, by the full name of their field or oneof.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../proto/evalfleet/*/v1/*.proto")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^package ([\w.]+);|^message (\w+) \{|((?:^ +//.*\n)+) +(?:oneof (\w+) \{|(?:repeated |optional )?(?:map<.*>|[\w.]+) (\w+) = \d+)`)
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
				first, _, _ := strings.Cut(strings.TrimSpace(m[3]), "\n")
				all[within+"."+message+"."+m[4]+m[5]] = strings.TrimPrefix(first, "// ")
			}
		}
	}
	return all
}
