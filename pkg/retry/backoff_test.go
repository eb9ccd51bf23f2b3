package retry_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/retry"
)

func TestBackoffDoublesWithJitterUpToItsBound(t *testing.T) {
	t.Parallel()
	different := map[time.Duration]bool{}
	for range 50 {
		b := retry.Backoff{First: 50 * time.Millisecond, Max: time.Second}
		for _, longest := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			wait := b.Next()
			assert.LessOrEqual(t, wait, longest*time.Millisecond)
			assert.GreaterOrEqual(t, wait, longest*time.Millisecond/2)
			different[wait] = true
		}
		b.Reset()
		assert.LessOrEqual(t, b.Next(), 50*time.Millisecond, "after an attempt that succeeded it begins anew")
	}
	assert.Greater(t, len(different), 100, "callers that failed together return apart")
	assert.Zero(t, new(retry.Backoff).Next())
}

func TestBackoffEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		start := time.Now()
		b := retry.Backoff{First: 100 * time.Millisecond, Max: time.Minute}
		for b.Wait(ctx) == nil {
		}
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, b.Wait(ctx), why)
	})
}

// A pause that a loop doubles by itself has no jitter: the loop uses Backoff.
func TestNoLoopDoublesAPauseByItself(t *testing.T) {
	t.Parallel()
	const skipped = "pkg/gen"
	root := filepath.Join("..", "..")
	for _, top := range []string{"pkg", "services"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, path)
			if d.IsDir() && name == skipped {
				return fs.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if loop, ok := n.(*ast.ForStmt); ok && loop.Post != nil && doublesUpTo(loop.Post) {
					assert.Fail(t, "a loop doubles its pause", "%s: use retry.Backoff", set.Position(loop.Pos()))
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
}

// doublesUpTo reports whether a statement is `pause = min(2*pause, …)`.
func doublesUpTo(post ast.Stmt) bool {
	assign, ok := post.(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 {
		return false
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return false
	}
	callee, isName := call.Fun.(*ast.Ident)
	product, doubles := call.Args[0].(*ast.BinaryExpr)
	return isName && callee.Name == "min" && doubles && product.Op == token.MUL
}
