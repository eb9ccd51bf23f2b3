package configdoc

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// sources finds doc comments of struct fields.
type sources struct {
	dir func(importPath string) string
	// packages are the struct types of packages that were read, by import path and name.
	packages map[string]map[string]*ast.StructType
}

// fields returns the doc comments of a struct's fields by name, each as one line.
func (s *sources) fields(t reflect.Type) (map[string]string, error) {
	types, err := s.read(t.PkgPath())
	if err != nil {
		return nil, err
	}
	declared, ok := types[t.Name()]
	if !ok {
		return nil, fmt.Errorf("configdoc: no struct %s in the sources of %s", t.Name(), t.PkgPath())
	}
	docs := map[string]string{}
	for _, f := range declared.Fields.List {
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		for _, name := range f.Names {
			docs[name.Name] = strings.Join(strings.Fields(text), " ")
		}
	}
	return docs, nil
}

// read reads the struct types of a package.
func (s *sources) read(importPath string) (map[string]*ast.StructType, error) {
	if types, ok := s.packages[importPath]; ok {
		return types, nil
	}
	dir := s.dir(importPath)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("configdoc: %w", err)
	}
	types := map[string]*ast.StructType{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("configdoc: %w", err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if declared, ok := spec.Type.(*ast.StructType); ok {
					types[spec.Name.Name] = declared
				}
			}
			return true
		})
	}
	if s.packages == nil {
		s.packages = map[string]map[string]*ast.StructType{}
	}
	s.packages[importPath] = types
	return types, nil
}
