/** What a command finds in its environment unless the spec or the request says otherwise. */
export const GUEST_ENV = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/root',
  USER: 'root',
  LOGNAME: 'root',
  SHELL: '/bin/sh',
  LANG: 'C.UTF-8',
  TERM: 'dumb',
}

/** Where programs look for the authorities that they trust, when the network has one of its own. */
export const TRUST_ENV = {
  SSL_CERT_FILE: '/etc/ssl/certs/ca-certificates.crt',
  CURL_CA_BUNDLE: '/etc/ssl/certs/ca-certificates.crt',
  GIT_SSL_CAINFO: '/etc/ssl/certs/ca-certificates.crt',
  REQUESTS_CA_BUNDLE: '/etc/ssl/certs/ca-certificates.crt',
  NODE_EXTRA_CA_CERTS: '/usr/local/share/ca-certificates/reve.crt',
}
