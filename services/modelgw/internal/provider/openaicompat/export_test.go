package openaicompat

// TheServices are the known services as data.
func TheServices() []Service { return services }

// Variables are the variables of a service: of its key, its address and the account's id.
func (s *Service) Variables() (keys, addresses []string) { return s.keyEnv(), s.addressEnv() }
