package bound_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/bounds.md")

const reference = "../../docs/bounds.md"

const head = `# Bounds

<!-- Written from pkg/bound; after a change run: go test ./pkg/bound -update -->

What the platform reads from outside is bounded. These bounds are constants: an operator cannot change them. How much work happens at once is configuration ([config.md](config.md)).
`

// The page lists every constant of the package with its value and its comment.
func TestPageIsCurrent(t *testing.T) {
	t.Parallel()
	want := head + page(t)
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(want), 0o644))
	}
	got, err := os.ReadFile(reference)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "run: go test ./pkg/bound -update")
}

func page(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	if build.Default.GOROOT == "" { // A test that was built with -trimpath does not know where Go is.
		root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
		require.NoError(t, err)
		build.Default.GOROOT = strings.TrimSpace(string(root))
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	_, err = (&types.Config{Importer: importer.ForCompiler(fset, "source", nil)}).Check("bound", fset, files, info)
	require.NoError(t, err)
	var b strings.Builder
	for _, file := range files {
		area := strings.TrimSuffix(filepath.Base(fset.Position(file.Package).Filename), ".go")
		single := &ast.GenDecl{Doc: &ast.CommentGroup{List: []*ast.Comment{{Text: "// " + strings.ToUpper(area[:1]) + area[1:]}}}}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			switch {
			case !ok || group.Tok != token.CONST:
			case group.Lparen.IsValid():
				table(t, &b, group, info)
			default: // Constants without a block have a table together, named for their file.
				group.Specs[0].(*ast.ValueSpec).Doc = group.Doc
				single.Specs = append(single.Specs, group.Specs...)
			}
		}
		if single.Specs != nil {
			table(t, &b, single, info)
		}
	}
	return b.String()
}

// table writes the constants of one block. The block's comment is the title, and what is to be said of all of them.
func table(t *testing.T, b *strings.Builder, group *ast.GenDecl, info *types.Info) {
	t.Helper()
	title := strings.TrimSpace(group.Doc.Text())
	require.NotEmpty(t, title, "each block of constants needs a comment that says what is read")
	title, rest, _ := strings.Cut(strings.TrimSuffix(line(title), "."), ". ") // The first sentence is the title.
	if rest != "" {
		rest += ".\n\n"
	}
	fmt.Fprintf(b, "\n## %s\n\n%s| bound | value | |\n| --- | --- | --- |\n", title, rest)
	var names, values []string
	comment := ""
	row := func() {
		if len(names) > 0 {
			fmt.Fprintf(b, "| %s | %s | %s |\n", strings.Join(names, ", "), strings.Join(values, ", "), strings.ReplaceAll(line(comment), "|", `\|`))
		}
	}
	for _, spec := range group.Specs {
		spec := spec.(*ast.ValueSpec)
		if spec.Doc != nil { // Those without a comment belong to the one above.
			row()
			names, values, comment = nil, nil, spec.Doc.Text()
		}
		for _, name := range spec.Names {
			require.NotEmpty(t, comment, "%s needs a comment", name.Name)
			names = append(names, "`"+name.Name+"`")
			values = append(values, show(t, info.Defs[name].(*types.Const)))
		}
	}
	row()
}

func line(text string) string { return strings.Join(strings.Fields(text), " ") }

// show writes durations as Go does, bytes in binary units and numbers in groups of three digits.
func show(t *testing.T, c *types.Const) string {
	t.Helper()
	if c.Val().Kind() != constant.Int {
		return c.Val().String()
	}
	n, exact := constant.Int64Val(c.Val())
	require.True(t, exact, c.Name())
	if c.Type().String() == "time.Duration" {
		return time.Duration(n).String()
	}
	if strings.HasSuffix(c.Name(), "Bytes") {
		for _, unit := range []struct {
			name  string
			shift uint
		}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
			if n >= 1<<unit.shift && n%(1<<unit.shift) == 0 {
				return fmt.Sprintf("%d %s", n>>unit.shift, unit.name)
			}
		}
	}
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
