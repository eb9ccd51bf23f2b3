// Package configdoc writes the reference page of a configuration from its structs: keys and variables from their tags,
// meanings from their doc comments in the sources. The page thus follows the program, and a test detects a stale page.
package configdoc

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
)

// Page returns the reference of a configuration struct as Markdown: a table of keys for each struct, outer ones first.
// Dir returns the source folder of a package by its import path.
func Page(cfg any, dir func(importPath string) string) (string, error) {
	p := &page{sources: &sources{dir: dir}}
	if err := p.section("", "", reflect.TypeOf(cfg)); err != nil {
		return "", err
	}
	return p.out.String(), nil
}

type page struct {
	sources *sources
	out     strings.Builder
}

// row is a key of a table.
type row struct{ key, kind, env, meaning string }

// nested is a struct whose keys are a section of their own.
type nested struct {
	path, intro string
	of          reflect.Type
}

// section writes a struct's keys, then the structs within it.
func (p *page) section(path, intro string, t reflect.Type) error {
	rows, inner, err := p.fields(path, t)
	if err != nil {
		return err
	}
	if path != "" {
		fmt.Fprintf(&p.out, "\n## %s\n\n%s\n", path, intro)
	}
	if len(rows) > 0 {
		p.out.WriteString("\n| key | value | variable | meaning |\n| --- | --- | --- | --- |\n")
		for _, r := range rows {
			fmt.Fprintf(&p.out, "| `%s` | %s | %s | %s |\n", r.key, r.kind, r.env, r.meaning)
		}
	}
	for _, n := range inner {
		if err := p.section(n.path, n.intro, n.of); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) fields(path string, t reflect.Type) (rows []row, inner []nested, err error) {
	docs, err := p.sources.fields(t)
	if err != nil {
		return nil, nil, err
	}
	keys := map[string]string{}
	for i := range t.NumField() {
		keys[t.Field(i).Name] = key(t.Field(i))
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline := key(f), strings.HasSuffix(f.Tag.Get("yaml"), ",inline")
		switch {
		case !f.IsExported() || name == "-":
			continue
		case inline:
			more, deeper, err := p.fields(path, f.Type)
			if err != nil {
				return nil, nil, err
			}
			rows, inner = append(rows, more...), append(inner, deeper...)
			continue
		case docs[f.Name] == "":
			return nil, nil, fmt.Errorf("configdoc: %s.%s has no doc comment", t, f.Name)
		}
		meaning := inKeys(docs[f.Name], f.Name, keys)
		full := strings.TrimPrefix(path+"."+name, ".")
		if of, suffix, ok := structIn(f.Type); ok {
			inner = append(inner, nested{full + suffix, meaning, of})
			continue
		}
		env := f.Tag.Get("env")
		if env != "" {
			env = "`" + env + "`"
		}
		rows = append(rows, row{name, kind(f.Type), env, strings.ReplaceAll(meaning, "|", `\|`)})
	}
	return rows, inner, nil
}

// structIn returns the struct of a field, or of its map or list elements, and the rest of its path.
func structIn(t reflect.Type) (of reflect.Type, suffix string, ok bool) {
	switch t.Kind() { //nolint:exhaustive // The rest holds no struct.
	case reflect.Pointer:
		return structIn(t.Elem())
	case reflect.Struct:
		return t, "", !plain(t)
	case reflect.Map:
		of, rest, ok := structIn(t.Elem())
		return of, ".NAME" + rest, ok
	case reflect.Slice:
		of, rest, ok := structIn(t.Elem())
		return of, "[]" + rest, ok
	}
	return nil, "", false
}

// plain reports whether a value of t is written as one text.
func plain(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// kind describes the values of t.
func kind(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[config.Secret]():
		return "secret"
	}
	if plain(t) {
		return "text"
	}
	switch t.Kind() { //nolint:exhaustive // The default covers the rest.
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list of " + plural(kind(t.Elem()))
	case reflect.Map:
		return "map of " + plural(kind(t.Elem()))
	}
	return "text"
}

// plural is of a kind, or of a list or map of kinds.
func plural(kind string) string {
	if collection, of, ok := strings.Cut(kind, " of "); ok {
		return collection + "s of " + of
	}
	return kind + "s"
}

// key is the field's name in the file.
func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "" {
		return strings.ToLower(f.Name)
	}
	return name
}

var word = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

// inKeys writes a doc comment with the names of the file in place of those of the struct: its own, with which it
// begins, and other names of several words, which are unambiguous.
func inKeys(doc, own string, keys map[string]string) string {
	if rest, ok := strings.CutPrefix(doc, own+" "); ok {
		doc = "`" + keys[own] + "` " + rest
	}
	return word.ReplaceAllStringFunc(doc, func(name string) string {
		if key, ok := keys[name]; ok && strings.Contains(key, "_") {
			return "`" + key + "`"
		}
		return name
	})
}
