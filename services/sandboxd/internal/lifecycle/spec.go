package lifecycle

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/bound"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Defaults and caps, as the protocol documents them.
const (
	defaultMemory       = 2 << 30
	defaultPIDs         = 256
	leastPIDs           = 4    // two threads of the guest, a shell and what it starts
	mostOpenFiles       = 4096 // by default, however many there may be
	defaultFileSize     = 4 << 30
	defaultLease        = 10 * time.Minute
	maxLease            = 24 * time.Hour
	defaultLifetime     = 24 * time.Hour
	maxLifetime         = 30 * 24 * time.Hour
	defaultSetupTimeout = 300 * time.Second
)

// complete returns a copy of spec with defaults, and rejects invalid values.
func (s *Sandboxes) complete(spec *sandboxv1.SandboxSpec) (*sandboxv1.SandboxSpec, error) {
	spec = proto.CloneOf(spec)
	if spec == nil {
		spec = &sandboxv1.SandboxSpec{}
	}
	spec.Driver = cmp.Or(spec.GetDriver(), s.cfg.Driver)
	if _, ok := s.drivers[spec.GetDriver()]; !ok {
		return nil, s.unknown(spec.GetDriver())
	}
	if err := s.check(spec); err != nil {
		return nil, err
	}
	if spec.Limits == nil {
		spec.Limits = &sandboxv1.Limits{}
	}
	l := spec.Limits
	if err := s.shareOpenFiles(l); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name  string
		field **int64
		value int64
	}{
		{"memory_bytes", &l.MemoryBytes, defaultMemory},
		{"pids", &l.Pids, defaultPIDs},
		{"open_files", &l.OpenFiles, 0},
		{"file_size_bytes", &l.FileSizeBytes, defaultFileSize},
		{"cpu_millis", &l.CpuMillis, min(s.cfg.CPUMillis, int64(runtime.NumCPU())*1000)},
		{"disk_bytes", &l.DiskBytes, 0},
	} {
		switch {
		case *d.field == nil && d.value > 0:
			*d.field = new(d.value)
		case *d.field != nil && **d.field <= 0:
			return nil, rpcerr.InvalidField("spec.limits."+d.name, "must be above zero; leave it out for the default")
		}
	}
	for _, d := range []struct {
		name            string
		field           **durationpb.Duration
		value, greatest time.Duration
	}{
		{"lease", &spec.Lease, defaultLease, maxLease},
		{"max_lifetime", &spec.MaxLifetime, defaultLifetime, maxLifetime},
		{"setup_timeout", &spec.SetupTimeout, defaultSetupTimeout, maxLifetime},
	} {
		if *d.field == nil {
			*d.field = durationpb.New(d.value)
		}
		if v := (*d.field).AsDuration(); v <= 0 || v > d.greatest {
			return nil, rpcerr.InvalidField("spec."+d.name, "must be above zero and at most %s", d.greatest)
		}
	}
	if spec.Network == nil || spec.GetNetwork().GetMode() == sandboxv1.NetworkMode_NETWORK_MODE_UNSPECIFIED {
		spec.Network = &sandboxv1.Network{Mode: sandboxv1.NetworkMode_NETWORK_MODE_NONE}
	}
	return spec, nil
}

// shareOpenFiles keeps what all processes of a sandbox can open together within Config.MaxOpenFiles. It refuses two
// limits whose product exceeds that, and fills in a limit that is not asked for with what the other leaves. It refuses
// fewer processes than a sandbox starts with: their want would look like a shortage of the machine, and be waited for.
func (s *Sandboxes) shareOpenFiles(l *sandboxv1.Limits) error {
	most := cmp.Or(s.cfg.MaxOpenFiles, machineOpenFiles())
	if pids := l.GetPids(); pids > 0 && pids < leastPIDs {
		return rpcerr.InvalidField("spec.limits.pids", "must be at least %d, since no sandbox starts with fewer; leave it out for the default", leastPIDs)
	}
	if l.Pids != nil && l.OpenFiles != nil {
		if pids, files := l.GetPids(), l.GetOpenFiles(); pids > 0 && files > most/pids {
			return rpcerr.InvalidField("spec.limits.open_files", "%d processes with %d open files each are more than the %d open files that a sandbox may have; "+
				"lower pids or open_files, or raise sandboxd.max_open_files", pids, files, most)
		}
		return nil
	}
	if l.Pids == nil {
		l.Pids = new(int64(defaultPIDs))
		if files := l.GetOpenFiles(); files > 0 {
			l.Pids = new(min(defaultPIDs, most/files))
		}
		if pids := l.GetPids(); pids < leastPIDs {
			return rpcerr.InvalidField("spec.limits.open_files", "leaves only %d processes of the %d open files that a sandbox may have; lower it, or raise sandboxd.max_open_files", pids, most)
		}
	}
	if pids := l.GetPids(); l.OpenFiles == nil && pids > 0 {
		l.OpenFiles = new(max(1, min(mostOpenFiles, most/pids)))
	}
	return nil
}

// machineOpenFiles is how many files a sandbox may have open where nothing else is configured: a share of what the
// machine allows, since the kernel bounds files of a process and of the machine, but not those of a group.
func machineOpenFiles() int64 {
	text, err := os.ReadFile("/proc/sys/fs/file-max")
	if err != nil {
		return bound.BoxOpenFiles
	}
	all, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return max(bound.BoxOpenFiles, all/bound.BoxOpenFilesShare)
}

// unknown is the error of a driver that is not configured.
func (s *Sandboxes) unknown(name string) error {
	return rpcerr.In("spec", rpcerr.DriverNotFound(name, slices.Sorted(maps.Keys(s.drivers))))
}

// check rejects a specification that is not supported yet, not allowed, or malformed.
func (s *Sandboxes) check(spec *sandboxv1.SandboxSpec) error {
	switch {
	case spec.GetAllowUnisolated() && !s.cfg.AllowUnisolated:
		return rpcerr.ActionDenied("sandboxes.unisolated", "spec.allow_unisolated: the operator of this service does not allow it; start it with --allow-unisolated")
	case spec.GetNetwork().GetMode() == sandboxv1.NetworkMode_NETWORK_MODE_ALLOW_LIST:
		return rpcerr.NotBuiltField("spec.network.mode", "a network allow-list")
	case spec.GetSnapshot() != "":
		return rpcerr.NotBuiltField("spec.snapshot", "starting from a snapshot")
	case spec.GetImage() != "" && spec.GetDriver() == "local":
		return rpcerr.In("spec.image", rpcerr.CapabilityUnsupported("images", "the local driver shows this machine's own system and has no images"))
	case spec.GetDriverConfigJson() != "" && !json.Valid([]byte(spec.GetDriverConfigJson())):
		return rpcerr.InvalidField("spec.driver_config_json", "is not JSON")
	case spec.GetDriverConfigJson() != "":
		return rpcerr.In("spec.driver_config_json", rpcerr.CapabilityUnsupported("driver_config_json", "the %s driver has no configuration of its own", spec.GetDriver()))
	}
	if err := CheckEnv(spec.GetEnv()); err != nil {
		return err
	}
	for key := range spec.GetLabels() {
		if strings.HasPrefix(key, "evalfleet") {
			return rpcerr.InvalidField("spec.labels", "%q: keys that begin with evalfleet are the platform's", key)
		}
	}
	return nil
}

// CheckEnv rejects variables that no process can have. In a request they are `spec.env`.
func CheckEnv(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "":
			return rpcerr.InvalidField("spec.env", "a variable needs a name")
		case strings.ContainsRune(name, '='):
			before, after, _ := strings.Cut(name, "=")
			return rpcerr.InvalidField("spec.env", "the name of a variable holds no =, as %q does; write the name %q and the value %q", name, before, after)
		case strings.ContainsRune(name, 0) || strings.ContainsRune(env[name], 0):
			return rpcerr.InvalidField("spec.env", "the variable %q holds a NUL, which none can", name)
		}
	}
	return nil
}

// remembered is what is kept of a spec: without the content of files, which may be large.
func remembered(spec *sandboxv1.SandboxSpec) *sandboxv1.SandboxSpec {
	spec = proto.CloneOf(spec)
	for _, f := range spec.GetFiles() {
		f.Body = nil
	}
	return spec
}
