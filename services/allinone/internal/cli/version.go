package cli

import (
	"encoding/json"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/version"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Tell the version of this program",
		Example: "  evalfleet version",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				b, err := json.Marshal(map[string]string{"version": version.String(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
				a.print("%s", b)
				return err
			}
			a.print("evalfleet %s (%s, %s/%s)", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
