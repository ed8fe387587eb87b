//! Words of PTX.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// Names, directives, instructions with their modifiers, registers.
    Word(&'a str),
    Integer(i128),
    Single(u32),
    Double(u64),
    Text(&'a str),
    Sign(u8),
    End,
}

pub struct Lexer<'a> {
    text: &'a [u8],
    whole: &'a str,
    at: usize,
    pub line: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

impl<'a> Lexer<'a> {
    pub fn new(whole: &'a str) -> Self {
        Self { text: whole.as_bytes(), whole, at: 0, line: 1 }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip(&mut self) {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => {
                    self.at += 2;
                    while self.at < self.text.len()
                        && !(self.peek(0) == b'*' && self.peek(1) == b'/')
                    {
                        self.line += u32::from(self.peek(0) == b'\n');
                        self.at += 1;
                    }
                    self.at += 2;
                }
                _ => return,
            }
        }
    }

    pub fn next(&mut self) -> Result<Token<'a>, String> {
        self.skip();
        if self.at >= self.text.len() {
            return Ok(Token::End);
        }
        let start = self.at;
        let byte = self.peek(0);
        if byte.is_ascii_digit() {
            return self.number();
        }
        if byte == b'"' {
            self.at += 1;
            while self.at < self.text.len() && self.peek(0) != b'"' {
                self.at += 1 + usize::from(self.peek(0) == b'\\');
            }
            self.at += 1;
            return Ok(Token::Text(&self.whole[start + 1..self.at - 1]));
        }
        if is_word(byte) {
            while is_word(self.peek(0)) || (self.peek(0) == b':' && self.peek(1) == b':') {
                self.at += if self.peek(0) == b':' { 2 } else { 1 };
            }
            // `.reg.b32` is two words; `ld.global` is one.
            if byte == b'.'
                && let Some(second) = self.whole[start + 1..self.at].find('.')
            {
                self.at = start + 1 + second;
            }
            return Ok(Token::Word(&self.whole[start..self.at]));
        }
        self.at += 1;
        Ok(Token::Sign(byte))
    }

    fn number(&mut self) -> Result<Token<'a>, String> {
        let start = self.at;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'.' {
            let exponent = matches!(self.peek(0), b'e' | b'E')
                && matches!(self.peek(1), b'+' | b'-')
                && !self.whole[start..self.at].contains(['x', 'X', 'f', 'F', 'd', 'D']);
            self.at += if exponent { 2 } else { 1 };
        }
        let text = &self.whole[start..self.at];
        let wrong = || format!("line {}: not a number: {text}", self.line);
        let (head, rest) = text.split_at(text.len().min(2));
        Ok(match head {
            "0f" | "0F" => Token::Single(u32::from_str_radix(rest, 16).map_err(|_| wrong())?),
            "0d" | "0D" => Token::Double(u64::from_str_radix(rest, 16).map_err(|_| wrong())?),
            "0x" | "0X" => Token::Integer(
                i128::from_str_radix(rest.trim_end_matches('U'), 16).map_err(|_| wrong())?,
            ),
            "0b" | "0B" => Token::Integer(
                i128::from_str_radix(rest.trim_end_matches('U'), 2).map_err(|_| wrong())?,
            ),
            _ if text.contains(['.', 'e', 'E']) => {
                Token::Double(text.parse::<f64>().map_err(|_| wrong())?.to_bits())
            }
            _ => {
                let digits = text.trim_end_matches('U');
                let octal = digits.len() > 1
                    && digits.starts_with('0')
                    && digits.bytes().all(|byte| byte.is_ascii_digit());
                let value =
                    if octal { i128::from_str_radix(digits, 8) } else { digits.parse::<i128>() };
                Token::Integer(value.map_err(|_| wrong())?)
            }
        })
    }
}

impl<'a> Lexer<'a> {
    /// The last place before here where `name` stands.
    pub fn find(&self, name: &str) -> &'a str {
        let end = self.at.min(self.whole.len());
        let start = self.whole[..end].rfind(name).expect("a name that was read");
        &self.whole[start..start + name.len()]
    }
}
