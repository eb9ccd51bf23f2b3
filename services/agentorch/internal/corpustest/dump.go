package corpustest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// dump returns a whole state in the form of JSON: structs by the names of their fields, lists by their positions, and
// without zero values.
func (f Fold) dump(t *testing.T, state any) any {
	t.Helper()
	var all any
	require.NoError(t, json.Unmarshal(marshal(t, f.value(t, "", reflect.ValueOf(state))), &all))
	return all
}

// value is the form of a value; nil for a zero one.
func (f Fold) value(t *testing.T, path string, v reflect.Value) any {
	t.Helper()
	if !v.IsValid() || v.IsZero() {
		return nil
	}
	if f.Show != nil {
		if shown, ok := f.Show(path, v.Interface()); ok {
			v = reflect.ValueOf(shown)
			return f.value(t, path+"!", v)
		}
	}
	switch one := v.Interface().(type) {
	case proto.Message:
		return json.RawMessage(jsonOf(t, one))
	case time.Time:
		return one.UTC().Format(time.RFC3339Nano)
	case time.Duration:
		return one.String()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if inner := f.value(t, path, v.Elem()); inner != nil {
			return inner
		}
		return map[string]any{}
	case reflect.Struct:
		return f.fields(t, path, v)
	case reflect.Slice:
		all := map[string]any{}
		for i := range v.Len() {
			all[fmt.Sprint(i)] = f.value(t, fmt.Sprintf("%s.%d", path, i), v.Index(i))
		}
		return orNil(all)
	case reflect.Map:
		all := map[string]any{}
		for entry := v.MapRange(); entry.Next(); {
			all[fmt.Sprint(entry.Key())] = f.value(t, fmt.Sprintf("%s.%v", path, entry.Key()), entry.Value())
		}
		return orNil(all)
	case reflect.Func, reflect.Chan:
		require.Fail(t, "a state holds what cannot be compared; it belongs into Skip", path)
		return nil
	default:
		return v.Interface()
	}
}

// fields are the fields of a struct, unexported ones included.
func (f Fold) fields(t *testing.T, path string, v reflect.Value) any {
	t.Helper()
	all := map[string]any{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if slices.Contains(f.Skip, v.Type().Name()+"."+field.Name) {
			continue
		}
		readable := reflect.NewAt(field.Type, unsafe.Pointer(v.Field(i).UnsafeAddr())).Elem()
		if value := f.value(t, strings.TrimPrefix(path+"."+field.Name, "."), readable); value != nil {
			all[field.Name] = value
		}
	}
	return orNil(all)
}

func orNil(all map[string]any) any {
	if len(all) == 0 {
		return nil
	}
	return all
}
