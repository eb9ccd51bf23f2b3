package config

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
)

// Differences returns the keys whose values differ between two configurations, pointers to structs of one type: the
// innermost keys of structs; maps and lists are one value.
func Differences(a, b any) []string {
	var keys []string
	differences(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), "", &keys)
	return keys
}

func differences(a, b reflect.Value, path string, keys *[]string) {
	if a.Kind() != reflect.Struct || readsItself(a.Type()) {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			*keys = append(*keys, path)
		}
		return
	}
	for i := range a.NumField() {
		field := a.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		inner := join(path, key(field))
		if inline(field) {
			inner = path
		}
		differences(a.Field(i), b.Field(i), inner, keys)
	}
}

// All yields the values of type T in a configuration, a pointer to a struct, with their paths: in structs, maps and
// lists.
func All[T any](cfg any) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { all(reflect.ValueOf(cfg).Elem(), "", yield) }
}

func all[T any](v reflect.Value, path string, yield func(string, T) bool) bool {
	if v.Type() == reflect.TypeFor[T]() {
		return yield(path, v.Interface().(T))
	}
	switch v.Kind() { //nolint:exhaustive // All others hold nothing.
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			inner := join(path, key(field))
			if inline(field) {
				inner = path
			}
			if field.IsExported() && !all(v.Field(i), inner, yield) {
				return false
			}
		}
	case reflect.Map:
		entries := v.MapKeys()
		slices.SortFunc(entries, func(a, b reflect.Value) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
		for _, entry := range entries {
			if !all(v.MapIndex(entry), join(path, entry.String()), yield) {
				return false
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if !all(v.Index(i), fmt.Sprintf("%s[%d]", path, i), yield) {
				return false
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return all(v.Elem(), path, yield)
		}
	}
	return true
}
