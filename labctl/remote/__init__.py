"""Everything over SSH: labctl's end of what `playbooks/` does on hosts.

ssh.py       connections, one per host, with keys that are checked
play.py      carries playbooks out, on all hosts at once; or shows what would be done
bundles.py   what hosts are brought: packages and our code, named by their hashes
wheels.py    compiled packages for a host's Python
deploy.py    prepare and deploy, for all hosts of a lab
site.py      the hosts of a lab as a place for the processes of a run
"""
