package modelgw

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/cache"
	cacheredis "github.com/evalfleet/evalfleet/pkg/cache/redis"
	cachesqlite "github.com/evalfleet/evalfleet/pkg/cache/sqlite"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/limit"
	limitredis "github.com/evalfleet/evalfleet/pkg/limit/redis"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
)

// RedisConfig is the Redis that several replicas of modelgw share.
type RedisConfig struct {
	// Addresses are where Redis is, host:port or the path of a socket; in a variable with commas between them. One
	// address is a server, several are nodes of a cluster. Without an address each process has its own limits, in
	// memory, and its own cached responses, in its data directory.
	Addresses []string `yaml:"addresses" env:"EVALFLEET_MODELGW_REDIS_ADDRESSES"`
	// Username is the user of Redis's access control. Default: the default user.
	Username string `yaml:"username" env:"EVALFLEET_MODELGW_REDIS_USERNAME"`
	// Password is that of the user.
	Password config.Secret `yaml:"password" env:"EVALFLEET_MODELGW_REDIS_PASSWORD"`
	// TLS encrypts the connections.
	TLS bool `yaml:"tls" env:"EVALFLEET_MODELGW_REDIS_TLS"`
	// CAFile is a file of the certificates (PEM) that may have signed Redis's own. Default: those that the system
	// trusts. It needs TLS.
	CAFile string `yaml:"ca_file" env:"EVALFLEET_MODELGW_REDIS_CA_FILE"`
	// DB is the number of the database. A cluster has only 0, the default.
	DB int `yaml:"db" env:"EVALFLEET_MODELGW_REDIS_DB"`
	// KeyPrefix begins the names of all keys. Installations that share a Redis need different ones. Default
	// `evalfleet:`.
	KeyPrefix string `yaml:"key_prefix" env:"EVALFLEET_MODELGW_REDIS_KEY_PREFIX"`
	// Replicas is how many replicas a process assumes if it starts while Redis is away: it then uses its equal part of
	// each limit. Later it uses the number that it saw last. Default 2.
	Replicas int `yaml:"replicas" env:"EVALFLEET_MODELGW_REDIS_REPLICAS"`
}

const defaultReplicas = 2

// SetDefaults sets the fields whose default is not zero.
func (c *RedisConfig) SetDefaults() {
	if c.KeyPrefix == "" {
		c.KeyPrefix = redisclient.DefaultPrefix
	}
	if c.Replicas == 0 {
		c.Replicas = defaultReplicas
	}
}

// Validate refuses addresses that are none, and options that need others.
func (c *RedisConfig) Validate() error {
	var faults []error
	for i, address := range c.Addresses {
		if strings.Contains(address, "@") || strings.Contains(address, "://") { // It may contain a password, which no error names.
			faults = append(faults, fmt.Errorf("addresses: number %d is a URL or has a user; write host:port, and use username, password, tls and db for the rest", i+1))
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil && !strings.HasPrefix(address, "/") {
			faults = append(faults, fmt.Errorf("addresses: %q is no address; write host:port, such as 127.0.0.1:6379, or the path of a socket", address))
		}
	}
	if c.CAFile != "" && !c.TLS {
		faults = append(faults, errors.New("ca_file: needs tls: true"))
	}
	if c.DB < 0 {
		faults = append(faults, errors.New("db: must not be negative"))
	}
	if c.DB > 0 && len(c.Addresses) > 1 {
		faults = append(faults, errors.New("db: a cluster has only database 0; give one address, or leave db out"))
	}
	if c.Replicas < 0 {
		faults = append(faults, errors.New("replicas: must not be negative"))
	}
	return errors.Join(faults...)
}

// tls returns how connections are encrypted; nil if they are not.
func (c *RedisConfig) tls() (*tls.Config, error) {
	if !c.TLS {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile == "" {
		return secure, nil
	}
	certificates, err := regularfile.Read(context.Background(), c.CAFile, bound.ConfigFileBytes)
	if err != nil {
		return nil, fmt.Errorf("redis.ca_file: %w", err)
	}
	secure.RootCAs = x509.NewCertPool()
	if !secure.RootCAs.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("redis.ca_file: %s has no certificate in PEM", c.CAFile)
	}
	return secure, nil
}

// shared are the stores that replicas may share.
type shared struct {
	limiter   limit.Limiter
	responses cache.Cache
	// closers end them, in their order.
	closers []func() error
}

// responsesFile is the name of the response cache in the data directory.
const responsesFile = "responses.db"

// share opens the stores: in Redis if it is configured, else the process's own. If Redis does not answer, that is
// logged and the service starts: it can do without, and a replica that has to restart in an outage is needed.
func share(cfg Config, deps Deps) (shared, error) {
	log := deps.Logger
	switch {
	case len(cfg.Redis.Addresses) > 0:
	case deps.DataDir == "":
		return shared{limiter: &limit.Memory{}, responses: cache.NewMemory(cfg.CacheBytes)}, nil
	default:
		responses := cachesqlite.New(filepath.Join(deps.DataDir, responsesFile), cfg.CacheBytes, log)
		return shared{limiter: &limit.Memory{}, responses: responses, closers: []func() error{responses.Close}}, nil
	}
	secure, err := cfg.Redis.tls()
	if err != nil {
		return shared{}, err
	}
	client := redisclient.Open(redisclient.Options{
		Addresses: cfg.Redis.Addresses, Username: cfg.Redis.Username, Password: cfg.Redis.Password, TLS: secure, DB: cfg.Redis.DB, Prefix: cfg.Redis.KeyPrefix,
	})
	if err := client.Check(context.Background()); err != nil {
		log.Warn("modelgw starts without its redis: it uses its part of each limit and caches no responses until redis answers", "error", err)
	}
	limiter := limitredis.New(limitredis.Config{Client: client, Replica: deps.Owner, Replicas: cfg.Redis.Replicas, Logger: log})
	return shared{
		limiter:   limiter,
		responses: cacheredis.New(client, int(min(cfg.CacheBytes, cacheredis.DefaultMaxValueBytes))),
		closers:   []func() error{limiter.Close, client.Close},
	}, nil
}
