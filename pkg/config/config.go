// Package config fills configuration structs: defaults, then a YAML file, then the environment. The command itself
// binds flags, which have the highest precedence.
//
// A struct belongs to the package that uses it, which declares its keys, defaults and checks. The embedding package
// nests it under a name, or inline, and repeats nothing. Its fields carry the tags
//
//	yaml:"max_connections"                                 the key in the file
//	env:"EVALFLEET_MODELGW_MAX_CONNECTIONS"                the variable that overrides it
//
// and a doc comment, from which the reference page is generated. An unknown key is a fault. This is the only package
// that reads the environment.
package config

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// Defaulter sets defaults that are not the zero value. SetDefaults fills the struct's own zero fields and leaves the
// others, so it is idempotent. [Load] calls it before the file is read: a zero in the file stays. A package calls it
// again only where zero means the default.
type Defaulter interface{ SetDefaults() }

// Validator names every fault of a struct's own fields, joined, each with its key in the file.
type Validator interface{ Validate() error }

// EnvReader takes values from variables whose names its type knows, such as those of a map's entries; other variables
// are tags. ReadEnv is called where a tag would be read.
type EnvReader interface{ ReadEnv(env Variables) }

// Variables are the variables that a program was started with.
type Variables struct{ lookUp func(string) (string, bool) }

// Get returns the value of the first variable that is set and not empty; empty if none is.
func (v Variables) Get(names ...string) string {
	for _, name := range names {
		if value, ok := v.lookUp(name); ok && value != "" {
			return value
		}
	}
	return ""
}

// Names returns the names of the process's variables, sorted, except those that the caller of [Load] hides.
func (v Variables) Names() []string {
	var names []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if _, ok := v.lookUp(name); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// SetDefaults calls SetDefaults of cfg, a pointer to a struct, and of every nested struct, inner ones first.
func SetDefaults(cfg any) { setDefaults(reflect.ValueOf(cfg)) }

// Validate returns the faults of cfg, a pointer to a struct, and of every nested struct, each with its path.
func Validate(cfg any) error { return validate(reflect.ValueOf(cfg), "") }

// Load fills cfg, a pointer to a struct: its defaults, the YAML file (none if file is empty), the environment as env
// returns it; then it validates. Nested structs that are Defaulters or Validators are included, inner ones first, and
// fields that are EnvReaders.
func Load(ctx context.Context, cfg any, file string, env func(string) (string, bool)) error {
	v := reflect.ValueOf(cfg)
	setDefaults(v)
	if file != "" {
		b, err := regularfile.Read(ctx, file, bound.ConfigFileBytes)
		if err != nil {
			return fmt.Errorf("read the configuration: %w", err)
		}
		if err := Decode(cfg, b); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := fromEnv(v.Elem(), env); err != nil {
		return err
	}
	return validate(v, "")
}

// Env reads the process's environment.
func Env(name string) (string, bool) { return os.LookupEnv(name) }

// Decode decodes YAML over cfg. An unknown key is an error that names it, its line and the valid keys; a value of the
// wrong kind, or a key that is set twice, one that names its line and its key.
func Decode(cfg any, b []byte) error {
	file, err := yamlnode.Parse(b)
	if file == nil || err != nil {
		return err
	}
	if err := errors.Join(unknownKeys(file, reflect.TypeOf(cfg), ""), wrongKinds(file, reflect.TypeOf(cfg), "")); err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(cfg); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// each calls f with every nested struct of v, inner ones first, as pointers, with their paths.
func each(v reflect.Value, path string, f func(reflect.Value, string)) {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || !v.Field(i).CanAddr() {
			continue
		}
		if v.Field(i).Kind() == reflect.Struct {
			inner := join(path, key(field))
			if inline(field) {
				inner = path
			}
			each(v.Field(i).Addr(), inner, f)
		}
	}
	f(v.Addr(), path)
}

func setDefaults(v reflect.Value) {
	each(v, "", func(p reflect.Value, _ string) {
		if d, ok := p.Interface().(Defaulter); ok {
			d.SetDefaults()
		}
	})
}

func validate(v reflect.Value, path string) error {
	var faults []error
	each(v, path, func(p reflect.Value, path string) {
		if c, ok := p.Interface().(Validator); ok {
			if err := c.Validate(); err != nil {
				if path != "" {
					err = fmt.Errorf("%s: %w", path, err)
				}
				faults = append(faults, err)
			}
		}
	})
	return errors.Join(faults...)
}

// key is the field's name in the file.
func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "" {
		return strings.ToLower(f.Name)
	}
	return name
}

// inline reports whether the field's keys are among those of its struct.
func inline(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return slices.Contains(strings.Split(options, ","), "inline")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func fromEnv(v reflect.Value, env func(string) (string, bool)) error {
	var faults []error
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if name := field.Tag.Get("env"); name != "" {
			if text, ok := env(name); ok {
				if err := set(v.Field(i), text); err != nil {
					faults = append(faults, fmt.Errorf("%s: %w", name, err))
				}
			}
			continue
		}
		if r, ok := v.Field(i).Addr().Interface().(EnvReader); ok {
			r.ReadEnv(Variables{env})
			continue
		}
		if v.Field(i).Kind() == reflect.Struct {
			faults = append(faults, fromEnv(v.Field(i), env))
		}
	}
	return errors.Join(faults...)
}

// set parses text into a field: texts, numbers, booleans, durations, comma-separated lists of text, and types that
// unmarshal themselves.
func set(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err := u.UnmarshalText([]byte(text))
		if v.Type() == reflect.TypeFor[slog.Level]() && err != nil {
			return fmt.Errorf("%q is none of debug, info, warn, error", text)
		}
		return err
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration; write one like 30s or 5m", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is no integer", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		v.SetFloat(n)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.String {
			return fmt.Errorf("cannot be set by the environment")
		}
		list := reflect.MakeSlice(v.Type(), 0, 0)
		for part := range strings.SplitSeq(text, ",") {
			list = reflect.Append(list, reflect.ValueOf(strings.TrimSpace(part)).Convert(v.Type().Elem()))
		}
		v.Set(list)
	default:
		return fmt.Errorf("cannot be set by the environment")
	}
	return nil
}
