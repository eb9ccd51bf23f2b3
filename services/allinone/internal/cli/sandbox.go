package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/enum"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

func (a *app) sandboxCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "sandbox",
		Short: "Look into sandboxes and act in them",
		Example: `  evalfleet sandbox ls
  evalfleet sandbox exec SANDBOX -- ps aux
  evalfleet sandbox cp SANDBOX:/work/out.txt .
  evalfleet sandbox rm SANDBOX`,
	}, a.sandboxListCommand(), a.sandboxExecCommand(), a.sandboxCopyCommand(), a.sandboxRemoveCommand(), a.sandboxImageCommand())
}

func (a *app) sandboxListCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List sandboxes, newest first",
		Example: `  evalfleet sandbox ls
  evalfleet sandbox ls --all`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				req := &sandboxv1.ListSandboxesRequest{Parent: a.parent(), ShowDeleted: all, PageSize: 1000}
				boxes, err := page(0, func(token string) ([]*sandboxv1.Sandbox, string, error) {
					req.PageToken = token
					r, err := s.sandboxes.ListSandboxes(ctx, req)
					return r.GetSandboxes(), r.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				var rows [][]string
				for _, b := range boxes {
					if a.json {
						if err := a.emit(b); err != nil {
							return err
						}
						continue
					}
					state := enum.Word(b.GetState())
					if b.GetStateReason() != "" {
						state += " (" + b.GetStateReason() + ")"
					}
					if b.GetIsolation().GetUnisolated() {
						state += " NOT ISOLATED"
					}
					rows = append(rows, []string{short(b.GetName()), b.GetSpec().GetDriver(), state, when(b.GetCreateTime()), when(b.GetLeaseExpireTime())})
				}
				switch {
				case a.json:
				case len(rows) == 0:
					a.note("no sandboxes")
				default:
					a.table([]string{"sandbox", "driver", "state", "made", "lease until"}, rows)
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "deleted, lost and failed ones too")
	return c
}

func (a *app) sandboxExecCommand() *cobra.Command {
	var input bool
	var timeout time.Duration
	var user, cwd string
	c := &cobra.Command{
		Use:               "exec [flags] SANDBOX -- PROGRAM [ARGUMENT...]",
		ValidArgsFunction: a.completeFirst(offerSandboxes),
		Short:             "Run a program in a sandbox",
		Long:              "Exec runs a program, writes what it prints as it prints it, and exits as it does. Flags stand before --; all that follows is the program's. No shell reads the arguments; name one where you want it.",
		Example: `  evalfleet sandbox exec SANDBOX -- ls -l
  evalfleet sandbox exec SANDBOX -- bash -c 'echo $HOME'
  evalfleet sandbox exec -i SANDBOX -- tee notes.txt < notes.txt`,
		DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			before := c.ArgsLenAtDash() // Arguments before --; -1 where there is none.
			switch {
			case len(args) == 0 || len(args) == 1 && before < 0 || before == 0 || before == len(args):
				return usage("name a sandbox and a program: SANDBOX -- PROGRAM; evalfleet sandbox ls shows sandboxes")
			case before < 0:
				return usage("write -- between the sandbox and the program: %s -- %s", args[0], args[1])
			case before > 1:
				return usage("%q is one argument too many; the program follows --", args[1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			spec := &sandboxv1.ExecSpec{Argv: args[1:], Cwd: cwd, User: user}
			if timeout > 0 {
				spec.Timeout = durationpb.New(timeout)
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				if input {
					b, err := io.ReadAll(io.LimitReader(a.input(ctx), smallBlob+1))
					if err != nil {
						return err
					}
					if len(b) > smallBlob {
						return errors.New("standard input is over 3 MiB; copy it with evalfleet sandbox cp")
					}
					spec.Stdin = b
				}
				name, err := s.name(ctx, sandboxes, args[0])
				if err != nil {
					return err
				}
				return s.exec(ctx, name, spec)
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&input, "interactive", "i", false, "pass standard input on, at most 3 MiB")
	f.DurationVar(&timeout, "timeout", 0, "kill it after so long, such as 30s")
	f.StringVarP(&user, "user", "u", "", "user name or id in the sandbox")
	f.StringVarP(&cwd, "cwd", "C", "", "working directory in the sandbox")
	return c
}

// exec runs a command and exits as it does.
func (s *session) exec(ctx context.Context, sandbox string, spec *sandboxv1.ExecSpec) error {
	stream, err := s.sandboxes.StreamExec(ctx, &sandboxv1.StreamExecRequest{Sandbox: sandbox, Spec: spec, Lossless: true})
	if err != nil {
		return err
	}
	var lost int64
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the server ended the stream before the program ended")
		}
		if err != nil {
			return err
		}
		if s.app.json {
			if err := s.app.emit(r); err != nil {
				return err
			}
		}
		switch e := r.GetEvent().(type) {
		case *sandboxv1.StreamExecResponse_Output:
			lost += e.Output.GetSkippedBytes()
			if s.app.json {
				continue
			}
			out := s.app.Stdout
			if e.Output.GetStream() == sandboxv1.ExecStream_EXEC_STREAM_STDERR {
				out = s.app.Stderr
			}
			if _, err := out.Write(e.Output.GetData()); err != nil {
				return err
			}
		case *sandboxv1.StreamExecResponse_Ended:
			return execEnd(e.Ended, lost)
		}
	}
}

// execEnd reports how a program ended. Lost output is a failure, because the program that reads the rest cannot detect
// it.
func execEnd(r *sandboxv1.ExecResult, lost int64) error {
	switch {
	case lost > 0:
		return statusError{max(1, int(r.GetExitCode())), fmt.Sprintf(
			"%d bytes of the output are missing: the program printed faster than they were read here; have it write to a file, and copy that with evalfleet sandbox cp", lost)}
	case r.GetTimedOut():
		return statusError{max(1, int(r.GetExitCode())), "the program ran out of time and was killed"}
	case r.GetOom():
		return statusError{max(1, int(r.GetExitCode())), "the sandbox ran out of memory"}
	case r.GetExitCode() != 0:
		return statusError{code: int(r.GetExitCode())}
	}
	return nil
}

func (a *app) sandboxCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "cp FROM TO",
		ValidArgsFunction: a.completeCopy,
		Short:             "Copy a file into or out of a sandbox",
		Long:              "One of both is SANDBOX:PATH, the other a path here, or - for standard input or output. Relative paths in a sandbox start in its working directory.",
		Example: `  evalfleet sandbox cp data.csv SANDBOX:/work/data.csv
  evalfleet sandbox cp SANDBOX:result.json -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage("name what to copy and where to")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			fromBox, fromPath, fromIn := strings.Cut(args[0], ":")
			toBox, toPath, toIn := strings.Cut(args[1], ":")
			if fromIn && toIn {
				return usage("%s and %s are both in sandboxes; copy to a file here first", args[0], args[1])
			}
			if !fromIn && !toIn {
				return usage("one of %s and %s must be SANDBOX:PATH", args[0], args[1])
			}
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				box := fromBox
				if toIn {
					box = toBox
				}
				name, err := s.name(ctx, sandboxes, box)
				switch {
				case err != nil:
					return err
				case fromIn:
					return s.download(ctx, name, fromPath, args[1])
				}
				return s.uploadFile(ctx, args[0], name, toPath)
			})
		},
	}
}

func (a *app) sandboxRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rm SANDBOX...",
		ValidArgsFunction: a.complete(offerSandboxes),
		Short:             "Remove sandboxes and kill what runs in them",
		Example:           `  evalfleet sandbox rm SANDBOX`,
		Args:              some("a sandbox; evalfleet sandbox ls shows them"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), func(ctx context.Context, s *session) error {
				for _, id := range args {
					name, err := s.name(ctx, sandboxes, id)
					if err != nil {
						return err
					}
					b, err := s.sandboxes.DeleteSandbox(ctx, &sandboxv1.DeleteSandboxRequest{Name: name})
					if err != nil {
						return err
					}
					if a.json {
						err = a.emit(b)
					} else {
						a.print("%s %s", short(b.GetName()), enum.Word(b.GetState()))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
