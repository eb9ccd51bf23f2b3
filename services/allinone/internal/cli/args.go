package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// none takes no arguments.
func none(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%q is one argument too many", args[0])
	}
	return nil
}

// one requires exactly one argument; the error names what the argument is.
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usage("name %s", what)
		case len(args) > 1:
			return usage("%q is one argument too many", args[1])
		}
		return nil
	}
}

// some takes one argument or more.
func some(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("name %s", what)
		}
		return nil
	}
}

// group makes a command that has others under it and does nothing itself.
func group(c *cobra.Command, under ...*cobra.Command) *cobra.Command {
	c.AddCommand(under...)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return noCommand(c, args[0])
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// noCommand is the error for a command that c does not have.
func noCommand(c *cobra.Command, name string) error {
	var known []string
	for _, under := range c.Commands() {
		known = append(known, under.Name())
	}
	meant := ""
	if question := suggest.Question(name, known); question != "" {
		meant = "; " + strings.TrimSpace(question)
	}
	return usage("%s has no command %q%s", c.CommandPath(), name, meant)
}

// page gathers the items of a list, at most limit; 0 is all.
func page[T any](limit int, next func(token string) ([]T, string, error)) ([]T, error) {
	var all []T
	for token := ""; ; {
		items, more, err := next(token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if token = more; token == "" {
			return all, nil
		}
	}
}
